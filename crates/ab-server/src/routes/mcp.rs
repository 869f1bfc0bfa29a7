//! Handles MCP requests to the workspace of a session or space, for all routes that serve them.

use ab_core::{Backend, NarrowOptions, Principal};
use ab_mcp::{CallerAddress, McpHttpEndpoint};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;

use super::Peer;
use crate::app::HttpApp;
use crate::problem::{Problem, ProblemKind};

/// Passes a request to the MCP endpoint of a workspace. The caller becomes the actor of its calls,
/// so that policy, approvals and audit log name the caller.
pub(crate) async fn pass(
    app: &HttpApp,
    mcp: McpHttpEndpoint,
    backend: &Backend,
    mut request: Request,
) -> Result<Response, Problem> {
    let backend = match request.extensions().get::<Principal>().cloned() {
        Some(principal) => backend.narrow(NarrowOptions::for_actor(principal))?,
        None => backend.clone(),
    };
    let address = CallerAddress(Peer::of(&request));
    request.extensions_mut().insert(address);
    tokio::select! {
        biased;
        // A call may wait for a person. The shutdown of the server must not wait for such a call.
        () = app.shutdown().cancelled() => {
            Err(Problem::new(ProblemKind::Unavailable, "the server is shutting down"))
        }
        answer = mcp.handle_request(backend, request) => Ok(answer.map(Body::new)),
    }
}

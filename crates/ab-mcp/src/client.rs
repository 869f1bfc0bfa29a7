//! An MCP client over any stream to a server.

use std::fmt;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData, JsonObject, Tool};
use rmcp::service::{
    ClientInitializeError, Peer, RoleClient, RunningService, ServiceError, ServiceExt,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::carried::carried_error;

/// A client that has completed the handshake with its server. Each call is sent once. The caller
/// decides whether to repeat a failed call.
pub struct Client {
    peer: Peer<RoleClient>,
    running: Mutex<Option<RunningService<RoleClient, ()>>>,
}

impl Client {
    /// Performs the handshake with the server at the other end of `stream`.
    pub async fn connect<S>(stream: S, time_limit: Duration) -> Result<Client>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shaken = timeout(time_limit, ().serve(stream)).await;
        let running = match shaken {
            Ok(Ok(running)) => running,
            Ok(Err(ClientInitializeError::JsonRpcError(error))) => {
                return Err(told(&error).unwrap_or_else(|| unshaken(&error)));
            }
            Ok(Err(error)) => return Err(unshaken(&error)),
            Err(_) => {
                let message = format!("the MCP server did not shake hands within {time_limit:?}");
                return Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message));
            }
        };
        Ok(Client { peer: running.peer().clone(), running: Mutex::new(Some(running)) })
    }

    /// Lists the tools of the server.
    pub async fn list_tools(&self) -> Result<Vec<Tool>> {
        self.peer.list_all_tools().await.map_err(failed)
    }

    /// Calls a tool. If the tool fails, returns a result in which `is_error` is set.
    pub async fn call_tool(&self, tool: &str, arguments: Value) -> Result<CallToolResult> {
        let arguments: JsonObject = match arguments {
            Value::Object(arguments) => arguments,
            Value::Null => JsonObject::new(),
            _ => {
                let message = format!("the arguments of {tool} are no object");
                return Err(Error::new(
                    ErrorCode::InvalidConfiguration,
                    ErrorKind::Invalid,
                    message,
                ));
            }
        };
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        self.peer.call_tool(request).await.map_err(failed)
    }

    /// The rmcp peer, for the parts of the protocol that this type does not cover.
    pub fn rmcp_peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Ends the connection to the server. Calls without an answer fail.
    pub async fn close(&self) {
        let running = self.running.lock().await.take();
        if let Some(running) = running {
            // Ignore an error, because the connection has ended anyway.
            let _ = running.cancel().await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

fn unshaken(error: &dyn fmt::Display) -> Error {
    let message = format!("the MCP server did not shake hands: {error}");
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message)
}

/// If a protocol error was made from an error of the connection, returns that error.
fn told(error: &ErrorData) -> Option<Error> {
    let data = error.data.as_ref()?;
    let (code, kind) = carried_error(data["code"].as_str()?, data["kind"].as_str()?)?;
    let told = Error::new(code, kind, error.message.to_string());
    Some(match data["hint"].as_str() {
        Some(hint) => told.with_hint(hint),
        None => told,
    })
}

fn failed(error: ServiceError) -> Error {
    if let ServiceError::McpError(error) = &error
        && let Some(told) = told(error)
    {
        return told;
    }
    let (code, kind) = match &error {
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
        }
        ServiceError::Timeout { .. } => (ErrorCode::Timeout, ErrorKind::Timeout),
        ServiceError::Cancelled { .. } => (ErrorCode::ExecError, ErrorKind::Cancelled),
        _ => (ErrorCode::ExecError, ErrorKind::CommandFailed),
    };
    Error::new(code, kind, format!("MCP: {error}"))
}

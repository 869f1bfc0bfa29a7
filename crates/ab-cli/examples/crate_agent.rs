//! An agent written with the crate `agent-client-protocol`. It asks before it writes a prompt into a file.
//!
//! Tests drive it through the gateway and as the agent of a session. It can be added to the configuration of `serve`:
//!
//! ```toml
//! [[agents]]
//! id = "crate"
//! argv = ["/path/to/crate_agent"]
//! toolchains = ["/path/to"]
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, Diff, Error,
    InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PermissionOption,
    PermissionOptionKind, PromptRequest, PromptResponse, RequestPermissionOutcome,
    RequestPermissionRequest, SessionId, SessionNotification, SessionUpdate, StopReason, ToolCall,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use agent_client_protocol::{
    Agent, Client, Result, Stdio, on_receive_notification, on_receive_request,
};
use tokio::sync::Notify;

const FILE: &str = "MADE.md";
/// The prompt after which the agent waits for its cancellation.
const HANG: &str = "hang";

#[derive(Default)]
struct Sessions {
    directories: Mutex<HashMap<SessionId, PathBuf>>,
    cancelled: Notify,
}

impl Sessions {
    fn add(&self, directory: PathBuf) -> SessionId {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let id = SessionId::new(format!("session-{}", directories.len() + 1));
        directories.insert(id.clone(), directory);
        id
    }

    fn directory(&self, id: &SessionId) -> Option<PathBuf> {
        let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.get(id).cloned()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let sessions = Arc::new(Sessions::default());
    let (of_new, of_prompt, of_cancel) = (sessions.clone(), sessions.clone(), sessions);
    Agent
        .v1()
        .name("crate-agent")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _client| {
                let response = InitializeResponse::new(request.protocol_version);
                responder.respond(response.agent_capabilities(AgentCapabilities::new()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _client| {
                responder.respond(NewSessionResponse::new(of_new.add(request.cwd)))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                let (sessions, client_of_turn) = (of_prompt.clone(), client.clone());
                // A turn waits for answers of the client, which the connection reads meanwhile.
                client.spawn(async move {
                    let ended = turn(&sessions, &client_of_turn, request).await;
                    responder.respond_with_result(ended.map(PromptResponse::new))
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _client| {
                of_cancel.cancelled.notify_one();
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

async fn turn(
    sessions: &Sessions,
    client: &ConnectionTo<Client>,
    request: PromptRequest,
) -> Result<StopReason> {
    let session = request.session_id;
    let Some(directory) = sessions.directory(&session) else {
        return Err(Error::session_not_found(session).into());
    };
    let tell = |update| client.send_notification(SessionNotification::new(session.clone(), update));
    let say = |text: &str| {
        tell(SessionUpdate::AgentMessageChunk(ContentChunk::new(ContentBlock::from(text))))
    };
    let prompt: String = request.prompt.iter().filter_map(text).collect();
    if prompt == HANG {
        say("I wait.")?;
        sessions.cancelled.notified().await;
        return Ok(StopReason::Cancelled);
    }
    let path = directory.join(FILE);
    let diff = Diff::new(path.clone(), prompt.clone());
    let call = ToolCall::new("write", format!("Write {FILE}"))
        .kind(ToolKind::Edit)
        .content(vec![diff.into()]);
    tell(SessionUpdate::ToolCall(call.clone()))?;
    let options = vec![
        PermissionOption::new("yes", "Write it", PermissionOptionKind::AllowOnce),
        PermissionOption::new("no", "Leave it", PermissionOptionKind::RejectOnce),
    ];
    let asked = RequestPermissionRequest::new(session.clone(), call.into(), options);
    let answer = client.send_request(asked).block_task().await?;
    let (status, said) = match answer.outcome {
        RequestPermissionOutcome::Selected(selected) if &*selected.option_id.0 == "yes" => {
            std::fs::write(&path, &prompt).map_err(Error::into_internal_error)?;
            (ToolCallStatus::Completed, "It is written.")
        }
        _ => (ToolCallStatus::Failed, "Then not."),
    };
    let fields = ToolCallUpdateFields::new().status(status);
    tell(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("write", fields)))?;
    say(said)?;
    Ok(StopReason::EndTurn)
}

fn text(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

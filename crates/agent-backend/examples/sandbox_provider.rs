//! A sandbox provider of your own. This one keeps a workspace in memory for each session and stops what is not used,
//! as a provider of virtual machines would; replace the map by calls of the provider's API.

#![allow(clippy::print_stdout, reason = "the reader is shown what happens")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_backend::agent::{
    AgentDefinition, AgentSessionId, ExternalSandbox, SandboxPerSession, SandboxProvider,
    SessionContext, SessionOptions,
};
use agent_backend::{Backend, Error, ErrorCode, ErrorKind, Result};
use async_trait::async_trait;

/// The account at the provider.
#[derive(Clone, Debug, Default)]
struct Machines(Arc<Mutex<HashMap<AgentSessionId, Machine>>>);

#[derive(Clone, Debug)]
struct Machine {
    disk: Backend,
    running: Arc<AtomicBool>,
}

#[async_trait]
impl SandboxProvider for Machines {
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>> {
        let machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = machines.get(&session.session_id).cloned();
        Ok(found.map(|machine| Box::new(machine) as Box<dyn ExternalSandbox>))
    }

    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>> {
        println!("create a machine for {}", session.session_id);
        let machine = Machine { disk: agent_backend::memory(), running: Arc::default() };
        let mut machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        machines.insert(session.session_id.clone(), machine.clone());
        Ok(Box::new(machine))
    }
}

#[async_trait]
impl ExternalSandbox for Machine {
    async fn start(&self) -> Result<()> {
        if !self.running.swap(true, Ordering::SeqCst) {
            println!("start it");
        }
        Ok(())
    }

    fn working_directory(&self) -> &str {
        "/"
    }

    async fn backend(&self) -> Result<Backend> {
        if self.running.load(Ordering::SeqCst) {
            return Ok(self.disk.clone());
        }
        let message = "the machine does not run";
        Err(Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let definition =
        AgentDefinition::builder().backend(SandboxPerSession::new(Machines::default())).build();
    let options = SessionOptions::for_session(AgentSessionId::parse("chat-7")?);
    let first = definition.start(options.clone()).await?;
    first.require_backend()?.write("notes.md", "from the first turn").await?;
    let resumed = definition.start(options).await?;
    println!("{}", resumed.require_backend()?.read_text("notes.md").await?);
    Ok(())
}

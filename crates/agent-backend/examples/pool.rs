//! A server without state: every request borrows its user's workspace from a pool.
//!
//! `cargo run -p agent-backend --example pool`

use std::path::PathBuf;
use std::sync::Arc;

use agent_backend::pool::{
    BackendLeaseRequest, BackendPool, BackendPoolOptions, IdleBackendCleanup,
};
use agent_backend::{Backend, LocalWorkspaceConfig, MissingRootPolicy};

#[derive(Clone)]
struct Config {
    base: PathBuf,
    user: String,
}

async fn open(config: Config) -> agent_backend::Result<Backend> {
    let mut local = LocalWorkspaceConfig::new(config.base.join(config.user));
    local.options.missing_root = MissingRootPolicy::Create;
    agent_backend::local_with(local)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let config = Config { base: directory.path().to_owned(), user: "nobody".to_owned() };
    let options = BackendPoolOptions {
        cleanup: IdleBackendCleanup::at_default_interval(),
        ..BackendPoolOptions::new(config)
    };
    let pool = Arc::new(BackendPool::new(open, options)?);

    let requests = ["ada", "grace", "ada", "ada"].into_iter().enumerate().map(|(number, user)| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let request = BackendLeaseRequest::for_key(user)
                .configure_if_created(|config: &mut Config| config.user = user.into());
            let file = format!("request-{number}.txt");
            pool.with_backend(request, async |backend| backend.write(&file, "done\n").await).await
        })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await??;
    }

    let ada = pool.acquire(BackendLeaseRequest::for_key("ada")).await?;
    show(&format!("ada has {:?}", ada.readdir(".").await?));
    drop(ada);
    show(&format!("{:?}", pool.stats()));
    pool.destroy_all().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn show(text: &str) {
    println!("{text}");
}

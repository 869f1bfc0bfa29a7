//! `webui`: opens the web page of a server in a browser.

use ab_core::{Error, ErrorCode, ErrorKind};
use agent_backend::{ServeClient, ServeClientSettings};
use clap::Args;
use serde_json::json;

use super::serve::{self, AfterStart};
use super::{CliCommand, RunningCommand};
use crate::config::{Config, ServeFlags};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::{browser, data_dir};

const EXAMPLES: &str = "\
Examples:
  agent-backend webui
  agent-backend webui --no-open
  ssh -L 3001:127.0.0.1:3001 box agent-backend webui --no-open

A link works once, and only for a few minutes. Its host name ends in .localhost, so open it on this
machine, or on another one through a tunnel to the same port.";

/// Open the web page of the server
///
/// Prints a one-time link, and opens it in the browser of this desktop. If no server runs with this
/// data directory, one is started.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Webui {
    /// Only print the link
    #[arg(long)]
    no_open: bool,

    /// Print JSON: an object with the URL of the page
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: ServeFlags,
}

impl CliCommand for Webui {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(webui: Webui, terminal: &mut Terminal) -> Result<(), Failure> {
    let config = Config::load(&webui.flags)?;
    let Some(url) = data_dir::running_server(&config.data_dir.value) else {
        if terminal.format() == Format::Json {
            let message = format!(
                "no server runs with the data directory {}",
                config.data_dir.value.display()
            );
            return Err(Failure::from(Error::new(
                ErrorCode::ConnectionClosed,
                ErrorKind::Unavailable,
                message,
            ))
            .with_hint("start one with `agent-backend serve`"));
        }
        let after = if webui.no_open { AfterStart::Nothing } else { AfterStart::OpenBrowser };
        return serve::run_with(config, after).await;
    };
    let link = link(&config, &url).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json!({ "url": link }))?,
        Format::Text => terminal.line(&link)?,
    }
    terminal.finish()?;
    if !webui.no_open {
        browser::open(&link).await;
    }
    Ok(())
}

/// The URL of a new login link of a running server. If the server requires no token, this is the
/// plain URL of the page.
async fn link(config: &Config, url: &str) -> Result<String, Failure> {
    let mut settings = ServeClientSettings::new(url);
    let token = match serve::token_of_running(config)? {
        Some(token) => token,
        None => return Ok(format!("{url}/ui")),
    };
    settings.token = Some(token.into());
    let link = ServeClient::new(settings)?.create_login_link().await?;
    let (scheme, authority) = url.split_once("://").unwrap_or(("http", url));
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    Ok(format!("{scheme}://{}:{port}{}", link.host, link.path))
}

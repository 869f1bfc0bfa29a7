//! How the workspace of a session is opened in an IDE.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::SessionId;
use crate::violation::FieldViolations;

/// An IDE that a caller can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ide {
    /// The name of the IDE in requests.
    pub id: &'static str,
    pub title: &'static str,
    /// The vendor's program that opens a directory.
    pub program: &'static str,
    /// Whether the IDE works on other machines with its own program there, which requires port
    /// forwarding.
    pub needs_port_forwarding: bool,
}

const fn ide(id: &'static str, title: &'static str, program: &'static str, remote: bool) -> Ide {
    Ide { id, title, program, needs_port_forwarding: remote }
}

impl Ide {
    pub const ALL: &'static [Ide] = &[
        ide("vscode", "Visual Studio Code", "code", true),
        ide("vscode-insiders", "Visual Studio Code Insiders", "code-insiders", true),
        ide("vscodium", "VSCodium", "codium", true),
        ide("cursor", "Cursor", "cursor", true),
        ide("windsurf", "Windsurf", "windsurf", true),
        ide("zed", "Zed", "zed", true),
        ide("idea", "IntelliJ IDEA", "idea", true),
        ide("pycharm", "PyCharm", "pycharm", true),
        ide("webstorm", "WebStorm", "webstorm", true),
        ide("phpstorm", "PhpStorm", "phpstorm", true),
        ide("goland", "GoLand", "goland", true),
        ide("clion", "CLion", "clion", true),
        ide("rider", "Rider", "rider", true),
        ide("rubymine", "RubyMine", "rubymine", true),
        ide("rustrover", "RustRover", "rustrover", true),
        ide("sublime", "Sublime Text", "subl", false),
        ide("emacs", "Emacs", "emacs", false),
        ide("nvim", "Neovim", "nvim", false),
        ide("vim", "Vim", "vim", false),
    ];

    /// The IDE with this name.
    pub fn find(id: &str) -> Option<&'static Ide> {
        Ide::ALL.iter().find(|ide| ide.id == id)
    }

    /// The names of all IDEs, separated for use in messages.
    pub fn comma_separated_names() -> String {
        let names: Vec<&str> = Ide::ALL.iter().map(|ide| ide.id).collect();
        names.join(", ")
    }
}

/// The body of `POST /api/v1/sessions/{id}/open/ide`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenIdeRequest {
    /// The IDE, such as `vscode`. Without an IDE, the response only says where the workspace is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ide: Option<String>,
}

impl OpenIdeRequest {
    /// Parses and checks the body. An empty body names no IDE.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object or names an unknown IDE.
    pub fn parse(body: &[u8]) -> Result<Option<&'static Ide>, FieldViolations> {
        if body.trim_ascii().is_empty() {
            return Ok(None);
        }
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let named = body.text("ide", &mut found);
        let ide = named.and_then(Ide::find);
        if named.is_some() && ide.is_none() {
            found.add_unavailable(
                "ide",
                format!("must be one of: {}", Ide::comma_separated_names()),
            );
        }
        body.end(&mut found);
        found.into_result(ide)
    }
}

/// Where the workspace of a session is, and how to open it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenIdeResponse {
    pub session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ide: Option<String>,
    /// The workspace as a directory on the machine of the server. Absent for a caller on another
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalWorkspaceAccess>,
    /// Access by SSH, from any machine. Absent if the session is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshWorkspaceAccess>,
    /// Access methods of the IDE that this server does not support yet.
    #[serde(default)]
    pub not_yet: Vec<String>,
    /// Things that the user should know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A workspace as a directory of the caller's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LocalWorkspaceAccess {
    pub path: String,
    /// The program and arguments that open the directory in the IDE.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// A workspace that is reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshWorkspaceAccess {
    /// The URL of the WebSocket that carries SSH.
    pub url: String,
    /// A command that starts the standard `ssh` through the WebSocket. `TOKEN_FILE` stands for the
    /// path of the file with the caller's token.
    pub command: Vec<String>,
    /// The same for the standard `sftp`.
    pub sftp: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ides_are_found_by_their_names() {
        let code = OpenIdeRequest::parse(br#"{"ide":"vscode"}"#).unwrap();
        assert_eq!(code.map(|ide| ide.program), Some("code"));
        assert_eq!(OpenIdeRequest::parse(b"").unwrap(), None);
        assert_eq!(OpenIdeRequest::parse(b"{}").unwrap(), None);
        for (body, status, field) in [
            (&br#"{"ide":"notepad"}"#[..], 422, "ide"),
            (br#"{"ide":1}"#, 400, "ide"),
            (br#"{"idea":"vim"}"#, 400, "idea"),
            (b"[]", 400, ""),
        ] {
            let found = OpenIdeRequest::parse(body).unwrap_err();
            assert_eq!(found.http_status(), status);
            assert!(found.messages_by_field().contains_key(field), "{found}");
        }
    }
}

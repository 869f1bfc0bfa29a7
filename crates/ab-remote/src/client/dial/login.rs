//! Logs in: tries the given credentials in their order, with the methods that the server accepts.

use ab_core::{Error, ErrorCause, ErrorCode, ErrorKind};
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg};
use russh::{MethodKind, MethodSet};
use std::path::Path;
use std::sync::Arc;

use super::failure::{ConnectError, TimeLeft};
use super::{Client, Dialled};
use crate::client::endpoint::Credential;
use crate::client::secret::SecretText;

/// Maximum number of rounds of prompts that a server may send before it accepts a password.
const MAX_QUESTIONS: usize = 8;

/// Logs in to a server that accepts any user name, because the stream to it has already
/// authenticated the client. First tries without credentials, and then with the token, because some
/// servers require it.
pub(super) async fn without_name(
    dialled: &mut Dialled,
    who: &str,
    user: &str,
    token: Option<&SecretText>,
    time_left: TimeLeft,
) -> Result<(), ConnectError> {
    let mut login = Login::new(dialled, who, user);
    let trying = async {
        if login.without().await? {
            return Ok(());
        }
        if let Some(token) = token
            && login.password(token).await?
        {
            return Ok(());
        }
        Err(login.refused())
    };
    time_left.spend("log in to", who, trying).await?
}

/// Logs in as a user with credentials.
pub(super) async fn with_credentials(
    dialled: &mut Dialled,
    who: &str,
    user: &str,
    credentials: &[Credential],
    time_left: TimeLeft,
) -> Result<(), ConnectError> {
    let mut login = Login::new(dialled, who, user);
    let trying = async {
        // The answer to a login without credentials also lists the methods that the server accepts.
        if login.without().await? {
            return Ok(());
        }
        for credential in credentials {
            let done = match credential {
                Credential::Password(password) => login.password(password).await?,
                Credential::Key { text, passphrase } => {
                    login.key(text, passphrase.as_ref()).await?
                }
                Credential::SshAgent { socket } => login.agent(socket).await?,
            };
            if done {
                return Ok(());
            }
        }
        Err(login.refused())
    };
    time_left.spend("log in to", who, trying).await?
}

struct Login<'a> {
    dialled: &'a mut Dialled,
    who: &'a str,
    user: &'a str,
    /// The methods that the server still accepts.
    methods: MethodSet,
    /// The attempts so far, for the error message.
    tried: Vec<String>,
    /// Why the SSH agent of the user could not be used.
    silent: Option<Error>,
}

impl<'a> Login<'a> {
    fn new(dialled: &'a mut Dialled, who: &'a str, user: &'a str) -> Self {
        Self { dialled, who, user, methods: MethodSet::empty(), tried: Vec::new(), silent: None }
    }

    async fn without(&mut self) -> Result<bool, ConnectError> {
        let user = self.user;
        let answer = self.handle().authenticate_none(user).await;
        self.heard(answer).await
    }

    async fn password(&mut self, password: &SecretText) -> Result<bool, ConnectError> {
        let mut asked = false;
        if self.takes(MethodKind::Password) {
            asked = true;
            self.tried.push("a password".to_owned());
            let user = self.user;
            let answer = self.handle().authenticate_password(user, password.reveal()).await;
            if self.heard(answer).await? {
                return Ok(true);
            }
        }
        // Many servers request the password with a prompt.
        if self.takes(MethodKind::KeyboardInteractive) && !asked {
            self.tried.push("a password, when asked for it".to_owned());
            return self.answers(password).await;
        }
        Ok(false)
    }

    async fn answers(&mut self, password: &SecretText) -> Result<bool, ConnectError> {
        let user = self.user;
        let mut answer = self.handle().authenticate_keyboard_interactive_start(user, None).await;
        for _ in 0..MAX_QUESTIONS {
            let prompts = match answer {
                Ok(KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. }) => prompts,
                Ok(KeyboardInteractiveAuthResponse::Success) => return Ok(true),
                Ok(KeyboardInteractiveAuthResponse::Failure {
                    remaining_methods,
                    partial_success,
                }) => {
                    let failure = AuthResult::Failure { remaining_methods, partial_success };
                    return self.heard(Ok(failure)).await;
                }
                Err(error) => return self.heard(Err(error)).await,
            };
            // If a prompt echoes its input, it is not a prompt for a password.
            if prompts.len() > 1 || prompts.iter().any(|prompt| prompt.echo) {
                return Ok(false);
            }
            let answers = prompts.iter().map(|_| password.reveal().to_owned()).collect();
            answer = self.handle().authenticate_keyboard_interactive_respond(answers).await;
        }
        Ok(false)
    }

    async fn key(
        &mut self,
        text: &SecretText,
        passphrase: Option<&SecretText>,
    ) -> Result<bool, ConnectError> {
        let passphrase = passphrase.map(SecretText::reveal);
        let key = russh::keys::decode_secret_key(text.reveal(), passphrase)
            .map_err(|error| unreadable(&error, passphrase.is_some()))?;
        if !self.takes(MethodKind::PublicKey) {
            return Ok(false);
        }
        self.tried.push(format!("the key {}", key.fingerprint(HashAlg::Sha256)));
        let hash = self.hash(&key.algorithm()).await?;
        let (user, key) = (self.user, Arc::<PrivateKey>::new(key));
        let key = PrivateKeyWithHashAlg::new(key, hash);
        let answer = self.handle().authenticate_publickey(user, key).await;
        self.heard(answer).await
    }

    async fn agent(&mut self, socket: &Path) -> Result<bool, ConnectError> {
        let binding = self.dialled.handle.agent_session_binding();
        let asking = async {
            let mut agent = AgentClient::connect_uds(socket).await?;
            if let Some(binding) = binding {
                // Ignore an error, because older SSH agents do not support session binding.
                let _ = agent.bind_session(binding, false).await;
            }
            let identities = agent.request_identities().await?;
            Ok::<_, russh::keys::Error>((agent, identities))
        };
        let (mut agent, identities) = match asking.await {
            Ok(asked) => asked,
            Err(error) => {
                // Continue with the next credential.
                let message = format!("cannot ask the ssh agent at {}: {error}", socket.display());
                self.silent =
                    Some(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
                return Ok(false);
            }
        };
        for identity in identities {
            if !self.takes(MethodKind::PublicKey) {
                return Ok(false);
            }
            let AgentIdentity::PublicKey { key, .. } = identity else { continue };
            let shown = key.fingerprint(HashAlg::Sha256);
            self.tried.push(format!("the agent's key {shown}"));
            let hash = self.hash(&key.algorithm()).await?;
            let user = self.user;
            let asking = self.handle().authenticate_publickey_with(user, key, hash, &mut agent);
            match asking.await {
                Ok(answer) => {
                    if self.heard(Ok(answer)).await? {
                        return Ok(true);
                    }
                }
                // The SSH agent, or its user, refused to sign. Try the next key.
                Err(_) if !self.handle().is_closed() => {}
                Err(_) => return Err(self.gone().await),
            }
        }
        Ok(false)
    }

    /// The hash for signatures with a key. This is the strongest hash that the server supports, and
    /// never SHA-1.
    async fn hash(&mut self, algorithm: &Algorithm) -> Result<Option<HashAlg>, ConnectError> {
        if !matches!(algorithm, Algorithm::Rsa { .. }) {
            return Ok(None);
        }
        let best = self.dialled.handle.best_supported_rsa_hash().await;
        match best {
            Ok(best) => Ok(best.flatten().or(Some(HashAlg::Sha256))),
            Err(_) => Err(self.gone().await),
        }
    }

    /// Interprets the server's answer. Returns whether the user is now logged in.
    async fn heard(
        &mut self,
        answer: Result<AuthResult, russh::Error>,
    ) -> Result<bool, ConnectError> {
        match answer {
            Ok(AuthResult::Success) => Ok(true),
            // russh reports a lost connection as a failure after which no methods remain.
            Ok(AuthResult::Failure { remaining_methods, partial_success })
                if !(remaining_methods.is_empty() && self.handle().is_closed()) =>
            {
                // Some servers remove a method from the list after one attempt, although they still
                // accept it.
                let before = std::mem::replace(&mut self.methods, remaining_methods);
                if !partial_success {
                    before.iter().for_each(|method| self.methods.push(*method));
                }
                Ok(false)
            }
            Ok(AuthResult::Failure { .. }) => Err(self.gone().await),
            Err(error) => {
                let lost = self.gone().await;
                Err(lost.with_source(error))
            }
        }
    }

    fn takes(&self, method: MethodKind) -> bool {
        self.methods.contains(&method)
    }

    fn handle(&mut self) -> &mut Handle<Client> {
        &mut self.dialled.handle
    }

    /// The error if the connection was closed. If the server closed the connection after too many
    /// attempts, the error says that the login was refused.
    async fn gone(&mut self) -> ConnectError {
        match (&mut self.dialled.gone).await {
            Ok(gone) if gone.refused && !self.tried.is_empty() => {
                self.refused().with_hint(gone.error.message())
            }
            Ok(gone) => ConnectError::lost("log in to", self.who, gone.error.message()),
            Err(_) => ConnectError::lost("log in to", self.who, "the connection was closed"),
        }
    }

    fn refused(&self) -> ConnectError {
        let Self { user, who, .. } = self;
        if let (Some(silent), []) = (&self.silent, self.tried.as_slice()) {
            return silent.clone().into();
        }
        let taken: Vec<&str> = self.methods.iter().map(Into::into).collect();
        let message = match self.tried.as_slice() {
            [] => format!("{who} accepts none of the credentials of '{user}'"),
            tried => format!("{who} refused the login of '{user}' with {}", tried.join(", ")),
        };
        let message = match &self.silent {
            Some(silent) => format!("{message}; {}", silent.message()),
            None => message,
        };
        let denied = ConnectError::denied(message);
        if taken.is_empty() {
            denied
        } else {
            denied.with_hint(format!("it takes {}", taken.join(", ")))
        }
    }
}

fn unreadable(error: &russh::keys::Error, has_passphrase: bool) -> ConnectError {
    let message = match (error, has_passphrase) {
        (russh::keys::Error::KeyIsEncrypted, false) => {
            "the private key is encrypted, and there is no passphrase".to_owned()
        }
        (_, true) => format!("cannot read the private key with this passphrase: {error}"),
        (_, false) => format!("cannot read the private key: {error}"),
    };
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        .with_cause(ErrorCause::PrivateKeyUnreadable)
        .into()
}

//! The digest of a question: SHA-256 over the principal and everything that determines what the
//! call does.
//!
//! Every field is preceded by its length or a tag, so two different calls never write the same
//! bytes. The code destructures structs without `..`. It therefore does not compile if the digest
//! lacks a new field.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::OwnedCall;
use crate::path::WsPath;
use crate::principal::Principal;
use crate::process::{
    Command, ExecLimits, ExecRequest, HostDirectory, HostDirectoryAccess, MountLayout,
    MountedWorkspace, PathRestrictions, ProcessLifetime, StdinMode, TerminalSize,
};

/// Must be changed whenever the encoding changes, so that digests of two versions are never equal.
const VERSION: &[u8] = b"agent-backend asked 1";

/// The SHA-256 digest of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallDigest([u8; 32]);

impl CallDigest {
    pub fn compute(principal: &Principal, call: &OwnedCall) -> Self {
        let mut out = Encoder(Sha256::new());
        out.bytes(VERSION);
        out.principal(principal);
        out.call(call);
        Self(out.0.finalize().into())
    }

    /// The digest of a call together with `payload`. The payload contains data that is not part of
    /// the call, such as the arguments of a tool.
    pub fn compute_with_payload(principal: &Principal, call: &OwnedCall, payload: &[u8]) -> Self {
        let mut out = Encoder(Sha256::new());
        out.bytes(VERSION);
        out.principal(principal);
        out.call(call);
        out.bytes(payload);
        Self(out.0.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for CallDigest {
    /// Writes the digest in lower case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

struct Encoder(Sha256);

impl Encoder {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.number(value.is_some().into());
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| put(self, item));
    }

    /// Writes the principal without its roles. The roles may change between the question and the
    /// answer while the caller stays the same.
    fn principal(&mut self, principal: &Principal) {
        self.text(principal.kind().as_str());
        self.text(principal.id());
        self.optional(principal.tenant(), |out, tenant| out.text(tenant.as_str()));
    }

    fn call(&mut self, call: &OwnedCall) {
        let OwnedCall { verb, path, to, request, size, modifies_workspace: modifies, recursive } =
            call;
        self.text(verb.as_str());
        self.optional(path.as_ref(), Self::path);
        self.optional(to.as_ref(), Self::path);
        self.optional(request.as_ref(), Self::request);
        self.optional(*size, Self::number);
        self.number((*modifies).into());
        self.number((*recursive).into());
    }

    /// Writes a path with its scope roots and access rules, because both affect which files the
    /// path can reach.
    fn path(&mut self, path: &WsPath) {
        self.list(&path.scope_root_parts(), |out, part| out.text(part));
        self.text(path.part_below_scope_root());
        self.list(path.access_rules(), |out, set| {
            out.number(set.prefix_bytes as u64);
            out.list(&set.hidden, |out, path| out.text(path));
            out.list(&set.read_only, |out, path| out.text(path));
        });
    }

    fn request(&mut self, request: &ExecRequest) {
        let ExecRequest {
            command,
            cwd,
            env,
            stdin,
            stdin_for_guards: input,
            // This option does not affect what the command does.
            stderr: _,
            terminal,
            lifetime,
            limits,
            restrictions,
            mount_layout: layout,
        } = request;
        match command {
            Command::Shell(line) => {
                self.number(0);
                self.text(line);
            }
            Command::Argv(words) => {
                self.number(1);
                self.list(words, |out, word| out.text(word));
            }
        }
        self.path(cwd);
        self.number(env.len() as u64);
        for (name, value) in env {
            self.text(name);
            self.text(value);
        }
        self.number(match stdin {
            StdinMode::Closed => 0,
            StdinMode::Piped => 1,
        });
        self.optional(input.as_ref(), |out, input| out.bytes(input));
        self.optional(*terminal, |out, TerminalSize { columns, rows }| {
            out.number(columns.into());
            out.number(rows.into());
        });
        self.number(match lifetime {
            ProcessLifetime::Owned => 0,
            ProcessLifetime::Detached => 1,
        });
        self.limits(limits);
        self.restrictions(restrictions);
        self.layout(layout);
    }

    fn limits(&mut self, limits: &ExecLimits) {
        let ExecLimits { wall_time: wall, cpu, memory, processes, file_size, open_files } = limits;
        for time in [wall, cpu] {
            self.optional(*time, |out, time| {
                out.number(time.as_secs());
                out.number(time.subsec_nanos().into());
            });
        }
        for count in [memory, processes, file_size, open_files] {
            self.optional(*count, Self::number);
        }
    }

    fn restrictions(&mut self, restrictions: &PathRestrictions) {
        let PathRestrictions { hidden, read_only, host_directories: binds } = restrictions;
        self.list(hidden, Self::path);
        self.list(read_only, Self::path);
        self.list(binds, |out, HostDirectory { path, access }| {
            out.text(path);
            out.number(match access {
                HostDirectoryAccess::ReadOnly => 0,
                HostDirectoryAccess::ReadWrite => 1,
            });
        });
    }

    fn layout(&mut self, layout: &MountLayout) {
        let MountLayout { scope_path: at, mounted: neighbours } = layout;
        self.optional(at.as_ref(), Self::path);
        self.list(
            neighbours,
            |out, MountedWorkspace { root, visible_path: below, mount_path: at, restrictions }| {
                out.text(root);
                out.path(below);
                out.path(at);
                out.restrictions(restrictions);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::approval::{ApprovalRequest, TriggeringRule};
    use crate::call::{Actor, Call, Verb};
    use crate::path::PathParser;
    use crate::principal::{PrincipalKind, Role, TenantId};

    fn path(text: &str) -> WsPath {
        PathParser::lenient().parse(text).unwrap()
    }

    fn asked(actor: &Actor, request: &ExecRequest) -> ApprovalRequest {
        let call =
            Call { request: Some(request), ..Call::for_path(actor, Verb::Exec, &request.cwd) };
        let origin =
            TriggeringRule { rule: "own.rule".to_owned(), reason: String::new(), suggestion: None };
        ApprovalRequest::new(&call, origin)
    }

    #[test]
    fn everything_that_decides_what_a_command_does_is_in_its_digest() {
        let plain = ExecRequest::shell("make -C a b");
        let words = ["make", "-C", "a b"].map(str::to_owned).to_vec();
        let with = |change: &dyn Fn(&mut ExecRequest)| {
            let mut request = plain.clone();
            change(&mut request);
            request
        };
        let requests = [
            plain.clone(),
            ExecRequest::shell("make -C  a b"),
            ExecRequest::new(Command::Argv(words)),
            with(&|r| r.cwd = path("src")),
            with(&|r| r.cwd = path("src").into_scope_root()),
            with(&|r| drop(r.env.insert("A".to_owned(), "BC".to_owned()))),
            with(&|r| drop(r.env.insert("AB".to_owned(), "C".to_owned()))),
            with(&|r| r.stdin = StdinMode::Piped),
            with(&|r| r.stdin_for_guards = Some("y\n".into())),
            with(&|r| r.terminal = Some(TerminalSize { columns: 80, rows: 24 })),
            with(&|r| r.lifetime = ProcessLifetime::Detached),
            with(&|r| r.limits.wall_time = Some(Duration::from_secs(1))),
            with(&|r| r.limits.cpu = Some(Duration::from_secs(1))),
            with(&|r| r.limits.memory = Some(1)),
            with(&|r| r.limits.processes = Some(1)),
            with(&|r| r.restrictions.hidden.push(path("a"))),
            with(&|r| r.restrictions.read_only.push(path("a"))),
            with(&|r| r.mount_layout.scope_path = Some(path("a"))),
        ];
        let actor = Actor::default();
        let digests: HashSet<_> = requests.iter().map(|r| asked(&actor, r).digest).collect();
        assert_eq!(digests.len(), requests.len());
    }

    #[test]
    fn a_repeated_question_has_the_same_digest_and_another_caller_has_another() {
        let request = ExecRequest::shell("ls");
        let ada = Principal::new(PrincipalKind::Person, "ada");
        let one = |principal: &Principal| asked(&Actor::from(principal.clone()), &request);
        let (first, again) = (one(&ada), one(&ada.clone().with_role(Role::Admin)));
        assert_ne!(first.id, again.id);
        assert_eq!(first.digest, again.digest);
        let elsewhere = ada.clone().with_tenant(TenantId::parse("acme").unwrap());
        for other in [Principal::new(PrincipalKind::ApiKey, "ada"), elsewhere] {
            assert_ne!(one(&other).digest, first.digest);
        }
    }

    /// Approvals are stored, so a new version must not accept digests of an old one.
    #[test]
    fn the_encoding_is_stable() {
        let digest = asked(&Actor::default(), &ExecRequest::shell("ls")).digest;
        assert_eq!(
            digest.to_string(),
            "dbe9567745fc09d3f78b4bfd853695fa8ae03621c2b2e8d1dcccba20be74fe63"
        );
    }
}

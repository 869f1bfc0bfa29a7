//! Resolves the links in the working directory of a command. This ensures that a command that waits
//! for an approval later runs in the directory that the person approved.

use std::collections::VecDeque;

use super::Backend;
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::FileKind;
use crate::options::{LinkHandling, StatOptions};
use crate::path::WsPath;
use crate::process::ExecRequest;

/// Maximum number of links that the resolution of one path may follow. The kernel has the same
/// limit.
const MAX_LINKS: usize = 40;

impl Backend {
    /// Replaces the working directory of a request by the directory to which its links lead at the
    /// time of this call.
    ///
    /// A command may wait for an approval, or be repeated after an approval. It then still runs in
    /// the directory that was shown to the person, even if a link was changed during the wait.
    ///
    /// # Errors
    ///
    /// The errors of [`resolve_links`](Self::resolve_links).
    pub async fn resolve_cwd(&self, request: ExecRequest) -> Result<ExecRequest> {
        Ok(ExecRequest { cwd: self.resolve_links(&request.cwd).await?, ..request })
    }

    /// Returns the path of the directory `cwd` with all links resolved. The part of the path that
    /// does not exist is kept unchanged.
    ///
    /// # Errors
    ///
    /// Fails if a guard forbids the path, or if the path leads out of the workspace or through too
    /// many links.
    pub async fn resolve_links(&self, cwd: &WsPath) -> Result<WsPath> {
        self.life.check(Verb::Exec)?;
        let refused = |kind, message: &str| Err(Error::for_path(Verb::Exec, cwd, kind, message));
        let mut real = WsPath::root();
        let mut pending: VecDeque<String> = cwd.segments().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name.is_empty() || name == "." {
                continue;
            }
            if name == ".." {
                match real.parent() {
                    Some(parent) => real = parent,
                    None => {
                        return refused(
                            ErrorKind::PathEscape,
                            "the directory is outside the workspace",
                        );
                    }
                }
                continue;
            }
            let path = real.child(&name)?;
            let options = StatOptions { links: LinkHandling::NoFollow };
            let is_link = match self.driver().stat(&path, options).await {
                Ok(found) => found.kind == FileKind::Symlink,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // The rest of the path does not exist, so it contains no links.
                    let mut rest = pending.iter().filter(|name| !name.is_empty() && *name != ".");
                    return rest.try_fold(path, |path, name| path.child(name));
                }
                Err(error) => return Err(of_exec(error, cwd)),
            };
            if !is_link {
                real = path;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return refused(ErrorKind::LinkLoop, "the directory leads through too many links");
            }
            let target =
                self.driver().read_link(&path).await.map_err(|error| of_exec(error, cwd))?;
            let mut target: Vec<&str> = target.split('/').collect();
            if target.len() > 1 && target[0].is_empty() {
                target.retain(|name| !name.is_empty() && *name != ".");
                let Some(below) = self.rules.below_root_alias(&target) else {
                    let message = "the directory leads through a link out of the workspace";
                    return refused(ErrorKind::PathEscape, message);
                };
                real = WsPath::root();
                target = below.to_vec();
            }
            target.iter().rev().for_each(|name| pending.push_front((*name).to_owned()));
        }
        Ok(real)
    }
}

/// Reports an error of a path component as an error of the command in `cwd`, because the caller
/// requested the command.
fn of_exec(error: Error, cwd: &WsPath) -> Error {
    error.with_verb(Verb::Exec).with_path(cwd.to_string())
}

//! The directory of a command with all links resolved, so that an approval is for the directory that a person saw.

use std::collections::VecDeque;

use ab_core::metadata::FileKind;
use ab_core::options::{LinkHandling, StatOptions};
use ab_core::{Backend, Error, ErrorKind, Verb};

/// Maximum number of links that the resolution of one path may follow. The kernel has the same
/// limit.
const MAX_LINKS: usize = 40;

/// Returns the path of the directory `cwd` with all links resolved. The part of the path that does
/// not exist is kept unchanged.
///
/// # Errors
///
/// Fails if the policy forbids the path, or if the path leads through an absolute link, out of the
/// workspace, or through too many links.
pub(crate) async fn resolve_links(backend: &Backend, cwd: &str) -> Result<String, Error> {
    let refused = |message: &str| -> Result<String, Error> {
        let path = backend.parse_path(cwd)?;
        Err(Error::for_path(Verb::Exec, &path, ErrorKind::Invalid, message))
    };
    let mut real: Vec<String> = Vec::new();
    let mut pending: VecDeque<String> = cwd.split('/').map(str::to_owned).collect();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name.is_empty() || name == "." {
            continue;
        }
        if name == ".." {
            if real.pop().is_none() {
                return refused("the directory is outside the workspace");
            }
            continue;
        }
        real.push(name);
        let path = real.join("/");
        let options = StatOptions { links: LinkHandling::NoFollow };
        match backend.stat_with(path.as_str(), options).await {
            Ok(found) if found.kind == FileKind::Symlink => {
                let target = backend.read_link(path.as_str()).await?;
                links += 1;
                if links > MAX_LINKS {
                    return refused("the directory leads through too many links");
                }
                if target.starts_with('/') {
                    return refused("the directory leads through an absolute link");
                }
                real.pop();
                target.rsplit('/').for_each(|name| pending.push_front(name.to_owned()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                real.extend(pending);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(if real.is_empty() { ".".to_owned() } else { real.join("/") })
}

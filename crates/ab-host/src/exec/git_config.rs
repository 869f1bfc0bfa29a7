//! Creates git's global configuration for commands, in the directory that `XDG_CONFIG_HOME` names.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::settings::GitIdentity;

/// The directories below the caches. The first one is the value of `XDG_CONFIG_HOME`.
const DIRECTORIES: [&str; 2] = ["config", "git"];
const FILE: &str = "config";

/// Creates the file in the directory of caches, unless the identity is empty. An existing file is
/// kept, because a command may have changed it.
///
/// # Errors
/// Fails if the file cannot be created. If the caches outlive the driver, a command may have put
/// another file in the place of a directory; then no file is created, and no link is followed.
pub(super) fn create(caches: &OwnedFd, identity: &GitIdentity) -> io::Result<()> {
    if *identity == GitIdentity::default() {
        return Ok(());
    }
    match created(caches.as_fd(), identity) {
        Ok(()) | Err(Errno::EXIST | Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn created(caches: BorrowedFd<'_>, identity: &GitIdentity) -> Result<(), Errno> {
    let mut directory = caches.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    for name in DIRECTORIES {
        match mkdirat(&directory, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&directory, FILE, flags, Mode::RUSR | Mode::WUSR)?;
    let text = text(identity);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    Ok(())
}

fn text(identity: &GitIdentity) -> String {
    let GitIdentity { name, email } = identity;
    let mut text = String::new();
    for (key, value) in [("name", name), ("email", email)] {
        if let Some(value) = value {
            let section = if text.is_empty() { "[user]\n" } else { "" };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            text.push_str(&format!("{section}\t{key} = \"{value}\"\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn the_file_is_created_once_and_values_are_quoted() {
        let caches = tempfile::tempdir().unwrap();
        let file = caches.path().join("config/git/config");
        let identity =
            GitIdentity { name: Some("A \"B\" \\ C".to_owned()), email: Some("a@b".to_owned()) };
        create(&open(caches.path()), &identity).unwrap();
        let text = "[user]\n\tname = \"A \\\"B\\\" \\\\ C\"\n\temail = \"a@b\"\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        create(&open(caches.path()), &GitIdentity::default()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }

    #[test]
    fn links_in_caches_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let (caches, outside) = (base.path().join("caches"), base.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        for (link, around) in
            [("config", ""), ("config/git", "config"), ("config/git/config", "config/git")]
        {
            fs::create_dir_all(caches.join(around)).unwrap();
            std::os::unix::fs::symlink(outside.join("x"), caches.join(link)).unwrap();
            std::os::unix::fs::symlink(&outside, outside.join("x")).unwrap_or_default();
            let identity = GitIdentity { name: Some("A".to_owned()), email: None };
            create(&open(&caches), &identity).unwrap();
            fs::remove_dir_all(&caches).unwrap();
        }
        let names: Vec<_> =
            fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
    }
}

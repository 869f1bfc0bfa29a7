//! A process that continues after ours has ended. If our process is killed, the watchdog kills the
//! processes that our commands left running, and removes what we made for them.
//!
//! - The watchdog is a shell, because a library does not know which program it is part of. It reads
//!   from a socket that only our process holds open, so it notices every end of our process, even by
//!   SIGKILL.
//! - There is one watchdog for the whole process. It is started before the first command that needs
//!   it. A command needs it if it has a control group, or if it is in a bwrap that does not end
//!   with us by itself. Later commands only check that the watchdog still runs.
//! - The watchdog finds our groups and processes by name, see [`incarnation`]: groups by their
//!   prefix, and processes by an environment variable that contains random text of our process. So
//!   it need not learn about single commands. If it is killed and started again, it can still find
//!   all of them.
//! - Placeholders in workspaces have no such names, so the watchdog is told about each of them.
//! - If our process forks a process that does not execute a program, that process holds the socket
//!   open too. In that case, the watchdog waits for the end of both.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};

use super::child::{Bond, Devices, Family, Image, Privileges, Terminal};
use super::strays::COOKIE;
use super::{incarnation, spawner};

const SHELL: &std::ffi::CStr = c"/bin/sh";
const SCRIPT: &str = include_str!("watchdog.sh");
/// The `PATH` of the watchdog, for the programs that it uses: `flock`, `grep`, `rm`, `rmdir`, `sleep`,
/// `stat` and `umount`.
const PATH: &std::ffi::CStr = c"PATH=/usr/sbin:/usr/bin:/sbin:/bin";
/// Signals that the watchdog ignores, so that it survives when all processes are asked to end.
const IGNORED: &[libc::c_int] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGPIPE,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

static WATCH: Mutex<Watch> =
    Mutex::new(Watch { running: None, places: BTreeSet::new(), files: Vec::new() });

#[derive(Debug)]
struct Watch {
    running: Option<Watchdog>,
    /// Directories in which we make private directories for commands.
    places: BTreeSet<PathBuf>,
    /// The placeholders that exist, each with its identity. Free slots are reused, so that the
    /// watchdog does not have to remember more slots than there were placeholders at a time.
    files: Vec<Option<(String, PathBuf)>>,
}

#[derive(Debug)]
struct Watchdog {
    handle: OwnedFd,
    /// Our end of the socket. The kernel closes it when our process is gone. This is not a pipe,
    /// because a write to a pipe without a reader would kill a program that has not changed the
    /// default effect of SIGPIPE.
    line: UnixStream,
}

/// Starts a watchdog for the groups in `parents`, unless one is running. May block.
pub(crate) fn stand(parents: &[&Path]) -> io::Result<()> {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.running.as_ref().is_some_and(|dog| !spawner::ended(&dog.handle)) {
        return Ok(());
    }
    watch.running = None;
    let dog = start(incarnation::prefix(), incarnation::mark(), parents)?;
    for place in &watch.places {
        tell(&dog, b"", place)?;
    }
    for (slot, file) in watch.files.iter().enumerate() {
        if let Some((identity, path)) = file {
            tell_file(&dog, slot, identity, path)?;
        }
    }
    watch.running = Some(dog);
    Ok(())
}

/// Makes the current or next watchdog also remove the directories in `place` whose names have our
/// prefix.
pub(crate) fn clears(place: &Path) {
    // The watchdog has another working directory, so it needs an absolute path.
    let Ok(place) = std::path::absolute(place) else { return };
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.places.contains(&place) {
        return;
    }
    if let Some(dog) = &watch.running {
        // If the watchdog has just ended, the next one is told when it starts.
        let _ = tell(dog, b"", &place);
    }
    watch.places.insert(place);
}

/// A placeholder that the current or next watchdog removes if this process is killed.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    slot: usize,
}

/// Makes the watchdog remove the placeholder at `path`, which must be absolute. `identity` consists of
/// its device and inode. Dropping the result makes the watchdog forget the placeholder.
pub(crate) fn removes(identity: String, path: PathBuf) -> WatchedFile {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    let free = watch.files.iter().position(Option::is_none);
    let slot = free.unwrap_or(watch.files.len());
    if let Some(dog) = &watch.running {
        // If the watchdog has just ended, the next one is told when it starts.
        let _ = tell_file(dog, slot, &identity, &path);
    }
    let file = Some((identity, path));
    match watch.files.get_mut(slot) {
        Some(place) => *place = file,
        None => watch.files.push(file),
    }
    WatchedFile { slot }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dog) = &watch.running {
            // If this is not received, the watchdog finds no such placeholder at the end.
            let _ = (&dog.line).write_all(format!("-{}\n", self.slot + 1).as_bytes());
        }
        if let Some(place) = watch.files.get_mut(self.slot) {
            *place = None;
        }
    }
}

fn tell_file(dog: &Watchdog, slot: usize, identity: &str, path: &Path) -> io::Result<()> {
    // The slots of the watchdog begin with 1.
    tell(dog, format!("+{} {identity} ", slot + 1).as_bytes(), path)
}

fn tell(dog: &Watchdog, prefix: &[u8], path: &Path) -> io::Result<()> {
    let path = path.as_os_str().as_bytes();
    // A path that contains a line break cannot be sent as a line. What is at such a path is not
    // removed.
    if !path.contains(&b'\n') {
        (&dog.line).write_all(&[prefix, path, b"\n"].concat())?;
    }
    Ok(())
}

fn start(prefix: &str, mark: &str, parents: &[&Path]) -> io::Result<Watchdog> {
    let (theirs, line) = UnixStream::pair()?;
    // If the watchdog is stopped, it does not read, and we must not block on it.
    line.set_nonblocking(true)?;
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    // The first argument remains the name of the shell. Some shells are part of a larger program,
    // which selects its function by this name.
    let mut arguments = vec![
        SHELL.to_owned(),
        c"-c".to_owned(),
        text(SCRIPT.as_bytes())?,
        c"agent-backend-watchdog".to_owned(),
        text(prefix.as_bytes())?,
        text(mark.as_bytes())?,
    ];
    for parent in parents {
        arguments.push(text(parent.as_os_str().as_bytes())?);
    }
    let mark = format!("{COOKIE}=watchdog-{}", std::process::id());
    let started = spawner::start_waiting(Image {
        program: SHELL.to_owned(),
        executable: None,
        arguments,
        environment: vec![PATH.to_owned(), text(mark.as_bytes())?],
        directory: rustix::fs::open("/", flags, Mode::empty())?,
        devices: Devices::Shared,
        overlays: Arc::default(),
        handles: vec![theirs.into(), null()?, null()?],
        terminal: Terminal::None,
        bond: Bond::Outlives,
        family: Family::Shared,
        ignored: IGNORED,
        rlimits: Vec::new(),
        groups: Vec::new(),
        privileges: Privileges::Keep,
        ruleset: None,
        filter: None,
    })?;
    Ok(Watchdog { handle: started.handle, line })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::limits::cgroup::Groups;

    const TIMEOUT: Duration = Duration::from_secs(30);
    /// A value of the environment variable that marks commands. No process has it.
    const NOBODY: &str = "0000000000000000";

    fn ends(dog: &Watchdog) {
        let mut waited = [PollFd::new(&dog.handle, PollFlags::IN)];
        let limit = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut waited, Some(&limit)), Ok(1), "it goes on");
        assert!(spawner::ended(&dog.handle));
    }

    /// Closes the socket, which has the same effect on the watchdog as the end of our process.
    fn wait_for_drop(dog: Watchdog) -> Watchdog {
        let (_, nobody) = UnixStream::pair().unwrap();
        Watchdog { line: nobody, ..dog }
    }

    #[test]
    fn it_ends_with_us_and_takes_nothing_of_others() {
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("kept");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "").unwrap();
        let name = |text: &str| place.path().join(format!("own '$(id)' {text}"));
        fs::create_dir_all(name("1").join("deep/er")).unwrap();
        fs::write(name("1").join("deep/file"), "").unwrap();
        symlink(&other, name("1").join("link")).unwrap();
        // This is a plain directory, not a control group.
        let mut bystander = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        fs::write(name("1").join("cgroup.procs"), format!("{}\n", bystander.id())).unwrap();
        symlink(&other, name("2")).unwrap();
        let dog = start("own '$(id)' ", NOBODY, &[]).unwrap();
        tell(&dog, b"", place.path()).unwrap();
        ends(&wait_for_drop(dog));
        assert!(!name("1").exists(), "what is ours is gone");
        assert!(name("2").is_symlink() && other.join("file").exists());
        assert_eq!(bystander.try_wait().unwrap(), None);
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

    #[test]
    fn placeholders_are_removed_and_other_files_stay() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if std::process::Command::new("flock").arg("--version").output().is_err() {
            return ab_testkit::host::report_skip("placeholders", "there is no program flock");
        }
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = place.path().join(name);
            let file = fs::File::create(&path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o400)).unwrap();
            let found = file.metadata().unwrap();
            (path, format!("{}:{}", found.dev(), found.ino()))
        };
        fs::create_dir(place.path().join("real")).unwrap();
        symlink("real", place.path().join("link")).unwrap();
        let dog = start("nobody's ", NOBODY, &[]).unwrap();
        let names = [
            "own '$(id)' $x \"",
            "forgotten",
            "written",
            "replaced",
            "locked",
            "linked",
            "link/own",
        ];
        let mut paths = Vec::new();
        for (slot, name) in names.into_iter().enumerate() {
            let (path, identity) = make(name);
            tell_file(&dog, slot, &identity, &path).unwrap();
            paths.push(path);
        }
        let [own, forgotten, written, replaced, locked, linked, behind] = paths.as_slice() else {
            panic!()
        };
        (&dog.line).write_all(b"-2\n").unwrap();
        fs::set_permissions(written, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(written, "content").unwrap();
        // The other file exists at the same time, so it cannot have the same inode.
        let (other, _) = make("other");
        fs::rename(other, replaced).unwrap();
        let user = fs::File::open(locked).unwrap();
        user.lock_shared().unwrap();
        fs::remove_file(linked).unwrap();
        symlink(forgotten, linked).unwrap();
        ends(&wait_for_drop(dog));
        assert!(!own.exists() && !behind.exists());
        for kept in [forgotten, written, replaced, locked] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert!(linked.is_symlink());
    }

    #[test]
    fn slots_are_reused_and_the_next_watchdog_knows_them() {
        let count = || WATCH.lock().unwrap().files.len();
        let first = removes("1:1".to_owned(), PathBuf::from("/nowhere/a"));
        let most = count();
        drop(removes("1:2".to_owned(), PathBuf::from("/nowhere/b")));
        drop(removes("1:3".to_owned(), PathBuf::from("/nowhere/c")));
        assert!(count() <= most + 1);
        drop(first);
        assert!(
            WATCH.lock().unwrap().files.iter().all(|file| {
                file.as_ref().is_none_or(|(_, path)| !path.starts_with("/nowhere"))
            })
        );
    }

    #[test]
    fn it_ends_groups_of_every_hierarchy_and_what_is_below_them() {
        let name = incarnation::next_name().replace("agent-backend-", "agent-backend-test-");
        let found = Groups::find();
        let mut seen = 0;
        for parent in found.parents() {
            let group = parent.join(format!("{name}-0"));
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let below = group.join("below");
            fs::create_dir(&below).unwrap();
            fs::create_dir(group.join(".hidden")).unwrap();
            let entering = format!("echo 0 > '{}/cgroup.procs' && exec cat", below.display());
            let mut member = Command::new("/bin/sh");
            member.args(["-c", &entering]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut member = member.spawn().unwrap();
            use std::io::{Read, Write};
            member.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            let mut heard = [0];
            let entered = member.stdout.as_mut().unwrap().read_exact(&mut heard).is_ok();
            let dog = start(&name, NOBODY, &found.parents()).unwrap();
            // Send the signals that come from a terminal or from a process that asks all others to
            // end.
            for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
                rustix::process::pidfd_send_signal(&dog.handle, signal).unwrap();
            }
            assert!(!spawner::ended(&dog.handle));
            ends(&wait_for_drop(dog));
            assert!(!group.exists(), "{}", group.display());
            use std::os::unix::process::ExitStatusExt;
            // Some controllers accept no member before they have been configured.
            if entered {
                assert_eq!(member.wait().unwrap().signal(), Some(9));
                seen += 1;
            } else {
                member.wait().unwrap();
            }
        }
        if seen == 0 {
            ab_testkit::host::report_skip("the watchdog of groups", "no group can be made");
        }
    }

    #[test]
    fn one_that_was_killed_is_started_again_and_knows_as_much() {
        let place = tempfile::tempdir().unwrap();
        let ours = place.path().join(incarnation::next_name());
        fs::create_dir(&ours).unwrap();
        clears(place.path());
        stand(&[]).unwrap();
        let running = || WATCH.lock().unwrap().running.take().unwrap();
        let first = running();
        rustix::process::pidfd_send_signal(&first.handle, rustix::process::Signal::KILL).unwrap();
        WATCH.lock().unwrap().running = Some(first);
        while !spawner::ended(&WATCH.lock().unwrap().running.as_ref().unwrap().handle) {
            std::thread::yield_now();
        }
        stand(&[]).unwrap();
        ends(&wait_for_drop(running()));
        assert!(!ours.exists());
    }
}

//! One child, started as vfork does: no copy of the parent's memory, however much that is.
//!
//! The child runs on a stack of its own in the parent's memory while the thread that started it
//! stands still, and does nothing but system calls until it is another program. Whatever it must
//! be given is prepared in an [`Image`] before. A call that fails ends it, and the parent is told
//! which one: nothing runs with less around it than was asked for.
//!
//! Beside this file only `readiness` needs `unsafe`.

#![allow(unsafe_code, reason = "clone, and the calls between it and execve, have no safe form")]

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;
use seccompiler::sock_filter;

/// Handles that a child is given have numbers from 0 on; those they come from are above this.
const FIRST_SOURCE: RawFd = 64;
const STACK: usize = 64 * 1024;

/// What becomes of the privileges of whoever starts the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    Keep,
    /// No program it starts can gain any.
    NoNew,
    /// None at all, also when it runs as root.
    Drop,
}

/// What becomes of the child when we end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// It is killed, however we ended.
    EndsWithUs,
    Outlives,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    None,
    /// The first handle becomes the controlling terminal.
    Controlling,
}

/// Which processes the child is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Shared,
    /// Those of a pid namespace whose first process it is, with its `/proc`. When it ends, the kernel
    /// ends all of them, whatever they are doing and however it ended.
    /// It starts at the top of its own mounts, whatever the image says.
    Own,
}

/// How the child sees the host's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    Shared,
    /// In mounts of its own, in which they are written to as ever and cannot be changed: who runs as
    /// root could otherwise take the mode from the host's. So could a handle, so with `null_input`
    /// the first one becomes the null device of these mounts.
    /// It starts at the top of them, whatever the image says.
    Fixed {
        null_input: bool,
    },
}

/// A limit of the kernel on the child and all it starts, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rlimit {
    pub(crate) resource: u32,
    pub(crate) value: u64,
}

/// A program, and everything around it.
#[derive(Debug)]
pub(crate) struct Image {
    /// Absolute, since a search would happen in the child.
    pub(crate) program: CString,
    /// The file to execute, where it is not the one of that name.
    pub(crate) executable: Option<OwnedFd>,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: OwnedFd,
    pub(crate) devices: Devices,
    /// They become 0, 1, 2 and so on; nothing else is open in the child.
    pub(crate) handles: Vec<OwnedFd>,
    pub(crate) terminal: Terminal,
    pub(crate) bond: Bond,
    pub(crate) family: Family,
    /// Signals that start out ignored; all others have their default effect.
    pub(crate) ignored: &'static [c_int],
    pub(crate) rlimits: Vec<Rlimit>,
    /// Files of control groups that the child enters by writing to them.
    pub(crate) groups: Vec<OwnedFd>,
    pub(crate) privileges: Privileges,
    pub(crate) ruleset: Option<Arc<OwnedFd>>,
    pub(crate) filter: Option<Arc<[sock_filter]>>,
}

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) handle: OwnedFd,
}

/// Copies of handles that a start needed. They are closed by whoever has time: right after a start
/// the child has the better use for the processor.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<OwnedFd>);

/// What the child was about to do when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Step {
    Clone,
    Session,
    ParentGone,
    Handles,
    Terminal,
    Mounts,
    Devices,
    Directory,
    Groups,
    Limits,
    Privileges,
    Landlock,
    Seccomp,
    Execute,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Step::Clone => "start a process",
            Step::Session => "make a session for the process",
            Step::ParentGone => "start a process while this one ends",
            Step::Handles => "hand over the process's files",
            Step::Terminal => "give the process its terminal",
            Step::Mounts => "give the process mounts of its own",
            Step::Devices => "keep the devices of the host as they are",
            Step::Directory => "enter the working directory",
            Step::Groups => "put the process into its control group",
            Step::Limits => "set the process's limits",
            Step::Privileges => "take the process's privileges",
            Step::Landlock => "put Landlock's rules in force",
            Step::Seccomp => "put the filter for system calls in force",
            Step::Execute => "execute the program",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step.as_str(), std::io::Error::from(self.errno))
    }
}

/// The memory that a child runs on until it is another program. One at a time uses it.
#[derive(Debug)]
pub(crate) struct Stack(Box<[u128]>);

impl Stack {
    pub(crate) fn new() -> Self {
        Self(vec![0; STACK / size_of::<u128>()].into_boxed_slice())
    }
}

/// What parent and child both see.
struct Shared<'a> {
    image: &'a Image,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    parent: i32,
    sources: Vec<RawFd>,
    executable: Option<RawFd>,
    directory: RawFd,
    groups: Vec<RawFd>,
    ruleset: Option<RawFd>,
    failed: Option<(Step, c_int)>,
}

/// Starts the program. Every signal must be blocked in the calling thread: a handler that ran in
/// the child would run in the parent's memory.
pub(crate) fn start(
    image: &Image,
    stack: &mut Stack,
    copies: &mut Copies,
) -> Result<Started, Failed> {
    let failed = |errno| Failed { step: Step::Handles, errno };
    if image.handles.len() >= FIRST_SOURCE as usize {
        return Err(failed(Errno::MFILE));
    }
    // Numbers that cannot collide with those that the child's handles get.
    let mut raised = |handle: &OwnedFd| -> Result<RawFd, Failed> {
        if handle.as_raw_fd() >= FIRST_SOURCE {
            return Ok(handle.as_raw_fd());
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(handle, FIRST_SOURCE).map_err(|errno| {
            // What the kernel says where not even the first of these numbers may be had.
            failed(if errno == Errno::INVAL { Errno::MFILE } else { errno })
        })?;
        let number = copy.as_raw_fd();
        copies.0.push(copy);
        Ok(number)
    };
    let sources = image.handles.iter().map(&mut raised).collect::<Result<_, _>>()?;
    let executable = image.executable.as_ref().map(&mut raised).transpose()?;
    let directory = raised(&image.directory)?;
    let groups = image.groups.iter().map(&mut raised).collect::<Result<_, _>>()?;
    let ruleset = image.ruleset.as_deref().map(&mut raised).transpose()?;
    let pointers = |texts: &[CString]| -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let mut shared = Shared {
        image,
        arguments: pointers(&image.arguments),
        environment: pointers(&image.environment),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        sources,
        executable,
        directory,
        groups,
        ruleset,
        failed: None,
    };
    let mut handle: c_int = -1;
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    if image.family == Family::Own {
        flags |= libc::CLONE_NEWPID;
    }
    let top = stack.0.as_mut_ptr_range().end.cast::<c_void>();
    // SAFETY: the stack is ours, aligned, and used by this child alone, since `CLONE_VFORK` holds
    // this thread until the child has executed or ended. `shared` outlives that, and nothing else
    // looks at it meanwhile. `child` never returns into this frame: it executes or exits.
    let pid = unsafe {
        libc::clone(child, top, flags, ptr::from_mut(&mut shared).cast::<c_void>(), &mut handle)
    };
    if pid < 0 {
        let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        return Err(Failed { step: Step::Clone, errno });
    }
    // SAFETY: the kernel has just made it for us, and nobody else knows it.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    // SAFETY: the child has written through the pointer that the kernel passed on, and is done.
    let failed = unsafe { ptr::read_volatile(&raw const shared.failed) };
    let Some((step, errno)) = failed else {
        return Ok(Started { pid, handle });
    };
    // It has ended already, and nobody else may wait for it.
    let waited = rustix::process::WaitIdOptions::EXITED;
    let _ = rustix::process::waitid(rustix::process::WaitId::PidFd(handle.as_fd()), waited);
    Err(Failed { step, errno: Errno::from_raw_os_error(errno) })
}

/// The child's life until it is another program.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: `start` passes a pointer to its own, and stands still.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    let Err(step) = become_program(shared);
    // SAFETY: reads the number of this thread's last failure.
    let errno = unsafe { *libc::__errno_location() };
    shared.failed = Some((step, errno));
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn holds(result: c_int, step: Step) -> Result<(), Step> {
    if result < 0 { Err(step) } else { Ok(()) }
}

fn held(result: libc::c_long, step: Step) -> Result<(), Step> {
    if result < 0 { Err(step) } else { Ok(()) }
}

/// Returns only when a call fails. Allocates nothing, takes no lock, and cannot panic.
fn become_program(shared: &Shared<'_>) -> Result<std::convert::Infallible, Step> {
    let image = shared.image;
    // SAFETY: plain system calls on numbers and on memory that `start` keeps.
    unsafe {
        holds(libc::setsid(), Step::Session)?;
        if image.bond == Bond::EndsWithUs {
            holds(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), Step::Session)?;
        }
        // A parent that ended before that call did not bring the signal.
        let parent = match image.family {
            Family::Shared => libc::getppid(),
            Family::Own => parent_outside(),
        };
        if parent != shared.parent {
            return Err(Step::ParentGone);
        }
        signals(image.ignored);
        let mut number: c_int = 0;
        for source in &shared.sources {
            holds(libc::dup2(*source, number), Step::Handles)?;
            number += 1;
        }
        if image.terminal == Terminal::Controlling {
            holds(libc::ioctl(0, libc::TIOCSCTTY, 0), Step::Terminal)?;
        }
        let own_mounts = image.family == Family::Own || image.devices != Devices::Shared;
        if own_mounts && !leave_mounts() {
            return Err(Step::Mounts);
        }
        if image.family == Family::Own && !mount_proc() {
            return Err(Step::Mounts);
        }
        if let Devices::Fixed { null_input } = image.devices {
            if !fix_devices() {
                return Err(Step::Devices);
            }
            if null_input {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                holds(null, Step::Devices)?;
                holds(libc::dup2(null, 0), Step::Devices)?;
            }
        }
        if own_mounts {
            // A handle would lead back to the host's own mounts.
            holds(libc::chdir(c"/".as_ptr()), Step::Directory)?;
        } else {
            holds(libc::fchdir(shared.directory), Step::Directory)?;
        }
        for group in &shared.groups {
            let written = libc::write(*group, c"0".as_ptr().cast(), 1);
            if written != 1 {
                return Err(Step::Groups);
            }
        }
        for Rlimit { resource, value } in &image.rlimits {
            let limit = libc::rlimit64 { rlim_cur: *value, rlim_max: *value };
            let set = libc::prlimit64(0, *resource as _, &limit, ptr::null_mut());
            holds(set, Step::Limits)?;
        }
        privileges(image.privileges)?;
        if let Some(ruleset) = shared.ruleset {
            let restrict = libc::SYS_landlock_restrict_self;
            held(libc::syscall(restrict, ruleset, 0), Step::Landlock)?;
        }
        if let Some(executable) = shared.executable {
            // It closes when it is executed.
            holds(libc::dup3(executable, number, libc::O_CLOEXEC), Step::Handles)?;
            number += 1;
        }
        let rest = libc::syscall(libc::SYS_close_range, number, c_int::MAX, 0);
        held(rest, Step::Handles)?;
        if let Some(filter) = &image.filter {
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr().cast_mut().cast(),
            };
            let mode = libc::SECCOMP_SET_MODE_FILTER as c_ulong;
            let set = libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program);
            held(set, Step::Seccomp)?;
        }
        let (arguments, environment) = (shared.arguments.as_ptr(), shared.environment.as_ptr());
        match shared.executable {
            Some(_) => {
                let (at, nameless) = (number - 1, libc::AT_EMPTY_PATH);
                let execute = libc::SYS_execveat;
                libc::syscall(execute, at, c"".as_ptr(), arguments, environment, nameless);
            }
            None => {
                libc::execve(image.program.as_ptr(), arguments, environment);
            }
        }
    }
    Err(Step::Execute)
}

/// The number of the parent as the host's `/proc` tells it: inside a new pid namespace `getppid`
/// answers 0 for every parent outside, gone or not. Zero where it cannot be told.
///
/// # Safety
/// Only in a child: it reads the file of the calling process, and nothing else.
unsafe fn parent_outside() -> c_int {
    // Longer than the line up to the number, whose longest part is a name of 16 bytes.
    let mut line = [0_u8; 128];
    // SAFETY: the path is a constant, and the buffer is as long as is said.
    let length = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::open(c"/proc/self/stat".as_ptr(), flags);
        if file < 0 {
            return 0;
        }
        let length = libc::read(file, line.as_mut_ptr().cast(), line.len());
        libc::close(file);
        length
    };
    let line = usize::try_from(length).ok().and_then(|length| line.get(..length));
    line.map_or(0, parent_in)
}

/// The number of the parent in a line in the form of `/proc/self/stat`: the second word after the
/// name, which is in parentheses and may have some of its own. Zero where there is none.
fn parent_in(line: &[u8]) -> c_int {
    let Some(end) = line.iter().rposition(|byte| *byte == b')') else { return 0 };
    let mut number: c_int = 0;
    // A space, a letter for the state, a space.
    for byte in line.iter().skip(end + 4) {
        if !byte.is_ascii_digit() {
            return if *byte == b' ' { number } else { 0 };
        }
        number = number.wrapping_mul(10).wrapping_add(c_int::from(*byte - b'0'));
    }
    0
}

/// Nothing of how the parent treats signals is passed on.
///
/// # Safety
/// Only in a child that shares no table of handlers with its parent.
unsafe fn signals(ignored: &[c_int]) {
    // SAFETY: the action is plain data, and the calls change only this process's table.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        for signal in 1..libc::SIGRTMIN() {
            action.sa_sigaction =
                if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            // KILL and STOP refuse, as they must.
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// # Safety
/// Only in a child that is about to execute.
unsafe fn privileges(privileges: Privileges) -> Result<(), Step> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;

    // SAFETY: plain system calls; the structures are what version 3 of the call reads.
    unsafe {
        if privileges == Privileges::Drop {
            let header = Header { version: VERSION_3, pid: 0 };
            let nothing = [0_u32; 6];
            let set = libc::syscall(libc::SYS_capset, &raw const header, nothing.as_ptr());
            held(set, Step::Privileges)?;
        }
        if privileges != Privileges::Keep {
            holds(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), Step::Privileges)?;
        }
    }
    Ok(())
}

/// The version of the kernel's Landlock; nothing where there is none.
pub(crate) fn landlock_version() -> Option<i32> {
    const ASK_FOR_VERSION: u32 = 1;
    // SAFETY: with this flag the call reads nothing and makes nothing.
    let version = unsafe {
        let create = libc::SYS_landlock_create_ruleset;
        libc::syscall(create, ptr::null::<c_void>(), 0, ASK_FOR_VERSION)
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// The devices that bwrap takes from the host.
const DEVICES: [&CStr; 6] =
    [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];

/// Whether a child can be given [`Devices::Fixed`]: tried on a thread, which then ends.
///
/// # Errors
/// It could not be tried, or failed for want of something that may be there the next time.
pub(crate) fn can_fix_devices() -> std::io::Result<bool> {
    // SAFETY: the thread does nothing else with what it sees then.
    tried(|| unsafe { leave_mounts() && fix_devices() })
}

/// What came of an attempt on a thread of its own, which then ends.
fn tried(attempt: fn() -> bool) -> std::io::Result<bool> {
    let builder = std::thread::Builder::new().name("ab-host tries".to_owned());
    let thread = builder
        .spawn(move || if attempt() { Ok(true) } else { Err(std::io::Error::last_os_error()) })?;
    let outcome = thread.join().map_err(|_| std::io::Error::other("the thread was lost"))?;
    match outcome.map_err(|error| (Errno::from_io_error(&error), error)) {
        Ok(done) => Ok(done),
        Err((Some(Errno::NOMEM | Errno::AGAIN | Errno::NOSPC | Errno::MFILE), error)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Whether a child can be given [`Family::Own`]: tried on a thread, which then ends.
///
/// # Errors
/// As those of [`can_fix_devices`].
pub(crate) fn can_make_families() -> std::io::Result<bool> {
    // The child asks the host's `/proc` for its parent, which must be a number that we know.
    let own = std::fs::read_link("/proc/self").ok();
    let own = own.and_then(|link| link.to_str()?.parse().ok());
    if own != Some(std::process::id()) {
        return Ok(false);
    }
    // SAFETY: only children of the thread would be in the new namespace, and it has none. It ends
    // without opening anything else.
    tried(|| unsafe { libc::unshare(libc::CLONE_NEWPID) == 0 && leave_mounts() && mount_proc() })
}

/// Takes the calling thread away from the host's mounts, to a copy of them.
///
/// # Safety
/// Only in a child that is about to execute, or on a thread that ends: all paths mean the copy then.
unsafe fn leave_mounts() -> bool {
    let nothing = ptr::null::<c_char>();
    // Nothing that is mounted later may reach the host's own mounts.
    let slaves = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the texts are constants.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, slaves, ptr::null()) == 0
    }
}

/// Mounts the `/proc` of the pid namespace that the caller is in. The host's knows its processes by
/// other numbers, and bwrap looks its children up by the numbers that it was given.
///
/// # Safety
/// Only after [`leave_mounts`].
unsafe fn mount_proc() -> bool {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (at, kind) = (c"/proc".as_ptr(), c"proc".as_ptr());
    // SAFETY: the texts are constants.
    unsafe { libc::mount(kind, at, kind, flags, ptr::null()) == 0 }
}

/// Puts read-only mounts of the devices over the devices.
///
/// # Safety
/// Only after [`leave_mounts`].
unsafe fn fix_devices() -> bool {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;

    let wanted = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    let (nothing, size) = (ptr::null::<c_char>(), size_of::<Attributes>());
    // SAFETY: the texts are constants; the structure is what the first version of the call reads, and
    // of the size that is told.
    unsafe {
        DEVICES.iter().all(|device| {
            let at = device.as_ptr();
            let set = libc::SYS_mount_setattr;
            libc::mount(at, at, nothing, libc::MS_BIND, ptr::null()) == 0
                && libc::syscall(set, libc::AT_FDCWD, at, 0, &raw const wanted, size) == 0
        })
    }
}

/// Blocks every signal in the calling thread, for good.
pub(crate) fn block_signals() {
    // SAFETY: plain calls on a set of our own; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        for (line, parent) in [
            ("12 (sh) S 7 12 12 0 -1", 7),
            ("12 (a) S 1 (b)) R 4711 12", 4711),
            ("12 (sh) S 7", 0),
            ("12 (sh) S x 1", 0),
            ("12 sh S 7 1", 0),
            ("", 0),
        ] {
            assert_eq!(parent_in(line.as_bytes()), parent, "{line}");
        }
        // SAFETY: it reads a file of this process.
        let told = unsafe { parent_outside() };
        assert_eq!(told, std::os::unix::process::parent_id().cast_signed());
    }
}

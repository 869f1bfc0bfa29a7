//! Starts one child process in the same way as vfork, without a copy of the parent's memory.
//!
//! The child runs on its own stack in the parent's memory, while the thread that started it is
//! suspended. Until the child executes another program, it makes only system calls. Everything that
//! it needs is prepared in an [`Image`]. If a call fails, the child exits and the parent learns
//! which call failed, so no program ever runs with less isolation than was requested.
//!
//! Apart from this file, only `readiness` needs `unsafe`.

#![allow(unsafe_code, reason = "clone, and the calls between it and execve, have no safe form")]

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;
use seccompiler::sock_filter;

/// The child's handles are numbered from 0 on. They are copied from handles whose numbers start
/// here, so that the two ranges do not overlap.
const FIRST_SOURCE: RawFd = 64;
const STACK: usize = 64 * 1024;

/// What happens to the privileges of our process in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    Keep,
    /// The child and the programs that it executes cannot gain new privileges.
    NoNew,
    /// The child has no privileges, even if it runs as root.
    Drop,
}

/// Whether the kernel ends the child when our process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// The kernel kills the child, for whatever reason our process ended.
    EndsWithUs,
    Outlives,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    None,
    /// The first handle is a terminal and becomes the controlling terminal.
    Controlling,
}

/// The pid namespace of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Shared,
    /// A new pid namespace with its own `/proc`. The child is its first process. When the child
    /// ends, the kernel kills all processes in the namespace. The child has its own mounts and
    /// starts in their `/`, so the image's `directory` is not used.
    Own,
}

/// How the child sees the host's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    Shared,
    /// The child sees the devices in read-only mounts of its own. They work as usual, but their
    /// attributes cannot be changed. Without these mounts, a command that runs as root could change
    /// the modes of the host's devices. It could also do this through a handle. So if `null_input`
    /// is true, the null device of these mounts replaces the first handle. The child starts in `/`
    /// of its own mounts, so the image's `directory` is not used.
    Fixed {
        null_input: bool,
    },
}

/// An overlay file system that covers a directory with a read-only copy of itself. Sockets in it
/// cannot be connected to.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) at: CString,
    /// The layers are the directory itself and [`EMPTY_LAYER`].
    pub(crate) options: CString,
}

/// A directory that is empty while overlays are mounted.
pub(crate) const EMPTY_LAYER: &CStr = c"/proc/fs";

/// A kernel limit. It applies separately to the child and to each process that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rlimit {
    pub(crate) resource: u32,
    /// The limit that the kernel enforces. The process can raise it up to `hard`.
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// A program and everything that its process needs.
#[derive(Debug)]
pub(crate) struct Image {
    /// The path of the program. It is absolute, because the child must not search for the program.
    pub(crate) program: CString,
    /// The file to execute, if that is not the file at `program`.
    pub(crate) executable: Option<OwnedFd>,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: OwnedFd,
    pub(crate) devices: Devices,
    /// Directories that the child sees through overlays, outer ones first. If there are any, the
    /// child starts in `/` of its own mounts, so `directory` is not used.
    pub(crate) overlays: Arc<[Overlay]>,
    /// The handles of the child. They get the numbers 0, 1, 2 and so on. Nothing else is open in
    /// the child.
    pub(crate) handles: Vec<OwnedFd>,
    pub(crate) terminal: Terminal,
    pub(crate) bond: Bond,
    pub(crate) family: Family,
    /// The signals that the child ignores from the start. All others have their default effect.
    pub(crate) ignored: &'static [c_int],
    pub(crate) rlimits: Vec<Rlimit>,
    /// The entry files of control groups. The child enters the groups by writing to these files.
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

/// Copies of handles that were needed for a start. The caller closes them later, because right
/// after a start the child makes better use of the processor time.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<OwnedFd>);

/// The step of the start at which the child failed.
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
    Overlays,
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
            Step::Session => "start a session for the process",
            Step::ParentGone => "start a process while this one ends",
            Step::Handles => "pass open files to the process",
            Step::Terminal => "give the process a terminal",
            Step::Mounts => "create a mount namespace for the process",
            Step::Devices => "protect the devices of the host",
            Step::Overlays => "cover the sockets of the host",
            Step::Directory => "enter the working directory",
            Step::Groups => "put the process into its control group",
            Step::Limits => "set the process's limits",
            Step::Privileges => "drop the privileges of the process",
            Step::Landlock => "apply the Landlock rules",
            Step::Seccomp => "apply the seccomp filter",
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

/// The stack on which a child runs until it executes another program. Only one child can use a
/// stack at a time.
#[derive(Debug)]
pub(crate) struct Stack(Box<[u128]>);

impl Stack {
    pub(crate) fn new() -> Self {
        Self(vec![0; STACK / size_of::<u128>()].into_boxed_slice())
    }
}

/// The memory that the parent and the child share.
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

/// Starts the program. The calling thread must have blocked every signal, because a signal handler
/// that ran in the child would run in the parent's memory.
pub(crate) fn start(
    image: &Image,
    stack: &mut Stack,
    copies: &mut Copies,
) -> Result<Started, Failed> {
    let failed = |errno| Failed { step: Step::Handles, errno };
    if image.handles.len() >= FIRST_SOURCE as usize {
        return Err(failed(Errno::MFILE));
    }
    // Make copies with high numbers, so that they differ from the numbers of the child's handles.
    let mut raised = |handle: &OwnedFd| -> Result<RawFd, Failed> {
        if handle.as_raw_fd() >= FIRST_SOURCE {
            return Ok(handle.as_raw_fd());
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(handle, FIRST_SOURCE).map_err(|errno| {
            // The kernel returns `INVAL` if the limit of open files is lower than the first of
            // these numbers.
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
    // SAFETY: the stack is ours and aligned. Only this child uses it, because `CLONE_VFORK`
    // suspends this thread until the child has executed or ended. `shared` exists until then, and
    // nothing else accesses it before. `child` never returns into this frame, because it executes
    // or exits.
    let pid = unsafe {
        libc::clone(child, top, flags, ptr::from_mut(&mut shared).cast::<c_void>(), &mut handle)
    };
    if pid < 0 {
        let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        return Err(Failed { step: Step::Clone, errno });
    }
    // SAFETY: the kernel has just created this handle for us, and nothing else owns it.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    // SAFETY: the child wrote through the pointer that it was given, and has finished doing so.
    let failed = unsafe { ptr::read_volatile(&raw const shared.failed) };
    let Some((step, errno)) = failed else {
        return Ok(Started { pid, handle });
    };
    // The child has exited, so it must be reaped.
    let waited = rustix::process::WaitIdOptions::EXITED;
    let _ = rustix::process::waitid(rustix::process::WaitId::PidFd(handle.as_fd()), waited);
    Err(Failed { step, errno: Errno::from_raw_os_error(errno) })
}

/// Runs in the child until the child executes another program.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: `start` passes a pointer to its own `Shared`, and is suspended while the child uses
    // it.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    let Err(step) = become_program(shared);
    // SAFETY: this only reads the `errno` of this thread.
    let errno = unsafe { *libc::__errno_location() };
    shared.failed = Some((step, errno));
    // SAFETY: this exits without running any of the parent's code.
    unsafe { libc::_exit(127) }
}

fn holds(result: c_int, step: Step) -> Result<(), Step> {
    if result < 0 { Err(step) } else { Ok(()) }
}

fn held(result: libc::c_long, step: Step) -> Result<(), Step> {
    if result < 0 { Err(step) } else { Ok(()) }
}

/// Turns the child into the program of the image. Returns only if a call fails. Allocates nothing,
/// takes no lock, and cannot panic.
fn become_program(shared: &Shared<'_>) -> Result<std::convert::Infallible, Step> {
    let image = shared.image;
    // SAFETY: these are plain system calls on numbers and on memory that `start` keeps alive.
    unsafe {
        holds(libc::setsid(), Step::Session)?;
        if image.bond == Bond::EndsWithUs {
            holds(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), Step::Session)?;
        }
        // If the parent ended before `prctl` was called, the kernel sends no signal. So check that
        // the parent still exists.
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
        let own_mounts = image.family == Family::Own
            || image.devices != Devices::Shared
            || !image.overlays.is_empty();
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
        if !mount_overlays(&image.overlays) {
            return Err(Step::Overlays);
        }
        if own_mounts {
            // The handle on the directory would lead back to the host's mounts.
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
        for Rlimit { resource, soft, hard } in &image.rlimits {
            let limit = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
            let set = libc::prlimit64(0, *resource as _, &limit, ptr::null_mut());
            holds(set, Step::Limits)?;
        }
        privileges(image.privileges)?;
        if let Some(ruleset) = shared.ruleset {
            let restrict = libc::SYS_landlock_restrict_self;
            held(libc::syscall(restrict, ruleset, 0), Step::Landlock)?;
        }
        if let Some(executable) = shared.executable {
            // The handle is closed when the program is executed.
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

/// Returns the parent's process id as the host's `/proc` shows it. Inside a new pid namespace,
/// `getppid` returns 0 for every parent outside, whether it still exists or not. Returns 0 if the
/// id cannot be read.
///
/// # Safety
/// Call this only in a child. It reads a file of the calling process and nothing else.
unsafe fn parent_outside() -> c_int {
    // The buffer must be long enough for the line up to the id. The longest part of the line is a
    // name of 16 bytes.
    let mut line = [0_u8; 128];
    // SAFETY: the path is a constant, and the length is the length of the buffer.
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

/// Returns the parent's process id from a line of `/proc/self/stat`. The id is the second word
/// after the name. The name is in parentheses and may contain parentheses. Returns 0 if there is no
/// id.
fn parent_in(line: &[u8]) -> c_int {
    let Some(end) = line.iter().rposition(|byte| *byte == b')') else { return 0 };
    let mut number: c_int = 0;
    // Skip a space, the letter of the state, and another space.
    for byte in line.iter().skip(end + 4) {
        if !byte.is_ascii_digit() {
            return if *byte == b' ' { number } else { 0 };
        }
        number = number.wrapping_mul(10).wrapping_add(c_int::from(*byte - b'0'));
    }
    0
}

/// Sets every signal to its default effect or to ignored, and unblocks all signals.
///
/// # Safety
/// Call this only in a child that does not share the table of signal handlers with its parent.
unsafe fn signals(ignored: &[c_int]) {
    // SAFETY: the action is plain data, and the calls change only the table of this process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        for signal in 1..libc::SIGRTMIN() {
            action.sa_sigaction =
                if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            // The calls for SIGKILL and SIGSTOP always fail. That is expected.
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Applies `privileges` to the calling process.
///
/// # Safety
/// Call this only in a child that is about to execute another program.
unsafe fn privileges(privileges: Privileges) -> Result<(), Step> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;

    // SAFETY: these are plain system calls, and version 3 of the call reads these structures.
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

/// Returns the version of the kernel's Landlock, or `None` if the kernel has no Landlock.
pub(crate) fn landlock_version() -> Option<i32> {
    const ASK_FOR_VERSION: u32 = 1;
    // SAFETY: with this flag, the call only returns the version.
    let version = unsafe {
        let create = libc::SYS_landlock_create_ruleset;
        libc::syscall(create, ptr::null::<c_void>(), 0, ASK_FOR_VERSION)
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// The host devices that bwrap binds.
const DEVICES: [&CStr; 6] =
    [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];

/// Returns whether a child can be started with [`Devices::Fixed`]. Tries it on a temporary thread.
///
/// # Errors
/// Fails if the attempt could not be made, or failed for a temporary reason.
pub(crate) fn can_fix_devices() -> std::io::Result<bool> {
    // SAFETY: the thread ends without using any other path.
    tried(|| unsafe { leave_mounts() && fix_devices() })
}

/// Returns whether a child can be started with these overlays. Tries it on a temporary thread.
///
/// # Errors
/// Fails in the same cases as [`can_fix_devices`].
pub(crate) fn can_mount_overlays(overlays: Vec<Overlay>) -> std::io::Result<bool> {
    // SAFETY: the thread ends without using any other path.
    tried(move || unsafe { leave_mounts() && mount_overlays(&overlays) })
}

/// Runs an attempt on a temporary thread. Returns whether the attempt succeeded.
fn tried(attempt: impl FnOnce() -> bool + Send + 'static) -> std::io::Result<bool> {
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

/// Returns whether a child can be started with [`Family::Own`]. Tries it on a temporary thread.
///
/// # Errors
/// Fails in the same cases as [`can_fix_devices`].
pub(crate) fn can_make_families() -> std::io::Result<bool> {
    // The child reads its parent's id from the host's `/proc`. So the host's `/proc` must show the
    // same ids that we see.
    let own = std::fs::read_link("/proc/self").ok();
    let own = own.and_then(|link| link.to_str()?.parse().ok());
    if own != Some(std::process::id()) {
        return Ok(false);
    }
    // SAFETY: only children of the thread would be in the new namespace, and it has no children.
    // The thread ends without opening anything else.
    tried(|| unsafe { libc::unshare(libc::CLONE_NEWPID) == 0 && leave_mounts() && mount_proc() })
}

/// Moves the calling thread into a new mount namespace that has a copy of the host's mounts.
///
/// # Safety
/// Call this only in a child that is about to execute another program, or on a thread that is about
/// to end. After this call, all paths refer to the copy.
unsafe fn leave_mounts() -> bool {
    let nothing = ptr::null::<c_char>();
    // With this, later mounts do not propagate to the host.
    let slaves = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the strings are constants.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, slaves, ptr::null()) == 0
    }
}

/// Mounts the `/proc` of the caller's pid namespace. This is needed because bwrap looks up its
/// children by the ids in its own namespace, and the host's `/proc` shows other ids.
///
/// # Safety
/// Call this only after [`leave_mounts`].
unsafe fn mount_proc() -> bool {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (at, kind) = (c"/proc".as_ptr(), c"proc".as_ptr());
    // SAFETY: the strings are constants.
    unsafe { libc::mount(kind, at, kind, flags, ptr::null()) == 0 }
}

/// Mounts each device read-only over itself.
///
/// # Safety
/// Call this only after [`leave_mounts`].
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
    // SAFETY: the strings are constants. The first version of the call reads this structure, and
    // `size` is its size.
    unsafe {
        DEVICES.iter().all(|device| {
            let at = device.as_ptr();
            let set = libc::SYS_mount_setattr;
            libc::mount(at, at, nothing, libc::MS_BIND, ptr::null()) == 0
                && libc::syscall(set, libc::AT_FDCWD, at, 0, &raw const wanted, size) == 0
        })
    }
}

/// Covers each directory with an overlay of itself.
///
/// # Safety
/// Call this only after [`leave_mounts`].
unsafe fn mount_overlays(overlays: &[Overlay]) -> bool {
    if overlays.is_empty() {
        return true;
    }
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    let (tmpfs, overlay) = (c"tmpfs".as_ptr(), c"overlay".as_ptr());
    // SAFETY: the strings are constants, or kept alive by the caller.
    unsafe {
        libc::mount(tmpfs, EMPTY_LAYER.as_ptr(), tmpfs, flags, ptr::null()) == 0
            && overlays.iter().all(|it| {
                let options = it.options.as_ptr().cast();
                libc::mount(overlay, it.at.as_ptr(), overlay, flags, options) == 0
            })
            && libc::umount2(EMPTY_LAYER.as_ptr(), libc::MNT_DETACH) == 0
    }
}

/// Blocks every signal in the calling thread, permanently.
pub(crate) fn block_signals() {
    // SAFETY: these are plain calls on our own set of signals, and they change only the mask of
    // this thread.
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
        // SAFETY: this only reads a file of this process.
        let told = unsafe { parent_outside() };
        assert_eq!(told, std::os::unix::process::parent_id().cast_signed());
    }
}

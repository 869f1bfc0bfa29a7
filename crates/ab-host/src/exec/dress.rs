//! A command with its walls around it: program, arguments, environment, handles, rules, filter.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::confines::Confines;
use ab_core::effective::Isolation;
use ab_core::error::{Code, Error, Kind, Result};
use ab_core::passed::Passed;
use ab_core::process::{Access, Command, ExecRequest};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use super::ends::{Ends, ends, piped};
use super::scene::{Scene, identity_of};
use super::settings::ExecSettings;
use super::standing::{Bwrap, Standing};
use super::{Reach, unstarted};
use crate::facilities::program::is_program;
use crate::process::child::{Bond, Devices, Image, Privileges, Rlimit, Terminal};
use crate::process::stream::filled_pipe;
use crate::process::supervise::Channels;
use crate::process::{incarnation, watchdog};
use crate::sandbox::bwrap::{self, Placed, SANDBOX_ROOT, Session, View, With};
use crate::sandbox::environment::{self, Base};
use crate::sandbox::landlock::{self, Grants};
use crate::sandbox::seccomp::{self, LocalSockets, Walls};

/// Longest single argument that the kernel takes, less than which there is room for a name.
const LONGEST_ARGUMENT: usize = 120 * 1024;
/// Sets of rules that are kept for the next command in the same place.
const KEPT_RULES: usize = 64;
/// The number of the first handle after the three that every program has.
const FIRST_EXTRA: i32 = 3;
/// What a shell says, and with what status it ends, when a directory was swapped while it started.
const SWAPPED: &str = "agent-backend: the workspace changed while the command was started";

/// What commands of one driver are lent, and what is made once for several.
#[derive(Debug, Default)]
pub(super) struct Wardrobe {
    rules: Mutex<BTreeMap<String, Lent>>,
    /// Lines that were screened, with their roots and directories.
    screened: Passed,
}

/// Rules for one place, and a directory for temporary files that only they open.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    ruleset: Arc<OwnedFd>,
    temporary: Arc<Temporary>,
}

/// A directory that is gone when its last user is.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    handle: OwnedFd,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed belongs to a command that took its own rights away.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A command that is ready to start.
#[derive(Debug)]
pub(super) struct Dressed {
    pub(super) image: Image,
    pub(super) reach: Reach,
    pub(super) channels: Channels,
    /// What the command was lent, for as long as it runs.
    pub(super) temporary: Option<Arc<Temporary>>,
}

impl Wardrobe {
    /// Takes everything that was lent, to be removed.
    pub(super) fn take(&self) -> BTreeMap<String, Lent> {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn dress(
        &self,
        settings: &ExecSettings,
        standing: &Standing,
        request: &ExecRequest,
        scene: &Scene,
        cookie: &str,
    ) -> Result<Dressed> {
        let Ends { mut theirs, ours, terminal } = ends(request)?;
        let script = Script::new(&standing.shell, &request.command, standing.path(settings))?;
        let home = match standing.isolation {
            Isolation::Bwrap => inside(scene),
            Isolation::Auto | Isolation::Landlock | Isolation::Software | Isolation::None => {
                scene.cwd_path.clone()
            }
        };
        let lent = match standing.isolation {
            Isolation::Landlock => Some(self.lend(settings, request, scene)?),
            Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None => None,
        };
        let temporary = lent.as_ref().map(|lent| lent.temporary.clone());
        let path = standing.path(settings);
        let base = Base {
            path: &path,
            home: &home,
            cwd: &home,
            shell: &standing.shell.to_string_lossy(),
            term: if terminal == Terminal::Controlling { "xterm-256color" } else { "dumb" },
            tmpdir: lent.as_ref().and_then(|lent| lent.temporary.path.to_str()),
            process: cookie,
        };
        let environment = environment::assemble(&base, &request.env)?;
        let (mut words, long) = script.into_words(FIRST_EXTRA);
        theirs.extend(long);
        let mut image = Image {
            program: CString::default(),
            executable: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: scene.cwd.try_clone().map_err(|error| unstarted(&error))?,
            devices: Devices::Shared,
            handles: Vec::new(),
            terminal,
            bond: Bond::EndsWithUs,
            ignored: &[],
            rlimits: rlimits(scene),
            groups: Vec::new(),
            privileges: Privileges::Keep,
            ruleset: None,
            filter: None,
        };
        let mut reach = Reach::Leader;
        match standing.isolation {
            Isolation::Bwrap => {
                let Some(bwrap) = &standing.bwrap else { return Err(unplanned()) };
                words = sandboxed(bwrap, settings, request, scene, words, &mut theirs)?;
                image.directory = root_directory()?;
                if bwrap.fixes_devices {
                    let null_input = request.terminal.is_none() && !piped(request);
                    image.devices = Devices::Fixed { null_input };
                }
                image.executable = bwrap.copy.as_deref().map(copied).transpose()?;
                image.privileges = if bwrap.setuid { Privileges::Keep } else { Privileges::NoNew };
                image.ruleset = bwrap.scopes.clone();
                match terminal {
                    // The terminal's signals go to all of its foreground, bwrap included, which
                    // would take the command down with it.
                    Terminal::Controlling => {
                        image.ignored = &[libc::SIGINT, libc::SIGQUIT];
                        reach = Reach::Beside;
                    }
                    Terminal::None => reach = Reach::Inside,
                }
            }
            Isolation::Landlock => {
                image.privileges = Privileges::Drop;
                image.ruleset = lent.map(|lent| lent.ruleset);
                let filter = seccomp::filter(Walls::Rules, settings.network, LocalSockets::Refused);
                image.filter = Some(filter.map_err(unavailable)?);
            }
            Isolation::Software => {
                let Some(screen) = settings.screen else { return Err(unplanned()) };
                // Without a sandbox its path is one like any other.
                let own = |alias: &&String| !alias.starts_with(SANDBOX_ROOT);
                let roots: Vec<String> = scene.aliases.iter().filter(own).cloned().collect();
                let confines =
                    Confines { roots: &roots, cwd: &scene.cwd_below, readable: bwrap::SYSTEM };
                let line = request.command.line();
                let roots = roots.iter().map(String::as_str);
                let texts = [&*line, &scene.cwd_below].into_iter().chain(roots);
                if !self.screened.has(texts.clone()) {
                    screen(&line, &confines)?;
                    self.screened.note(texts);
                }
            }
            Isolation::Auto | Isolation::None => {}
        }
        image.program = text(words.first().map_or("", String::as_str))?;
        image.arguments = words.iter().map(|word| text(word)).collect::<Result<_>>()?;
        image.environment = environment
            .iter()
            .map(|(key, value)| text(&format!("{key}={value}")))
            .collect::<Result<_>>()?;
        image.handles = theirs;
        Ok(Dressed { image, reach, channels: ours, temporary })
    }

    /// Rules for what the command may see, made again only where something else is there.
    fn lend(&self, settings: &ExecSettings, request: &ExecRequest, scene: &Scene) -> Result<Lent> {
        let key: Vec<String> =
            scene.visible.iter().filter_map(|it| identity_of(&it.handle)).collect();
        let kept: Vec<bool> = scene.visible.iter().map(|it| it.read_only).collect();
        let key = format!("{} {kept:?} {:?}", key.join(" "), request.restrictions.binds);
        if let Some(lent) = self.lock().get(&key) {
            return Ok(lent.clone());
        }
        let temporary = Arc::new(temporary(settings)?);
        let mut grants = Grants {
            writable: scene
                .visible
                .iter()
                .filter(|visible| !visible.read_only)
                .map(|visible| &visible.handle)
                .collect(),
            readable: bwrap::SYSTEM.iter().chain(bwrap::SETTINGS).map(Path::new).collect(),
        };
        grants.readable.extend(["/etc/passwd", "/etc/group"].map(Path::new));
        grants.readable.extend(settings.toolchains.iter().map(PathBuf::as_path));
        let kept: Vec<&Path> = scene
            .visible
            .iter()
            .filter(|visible| visible.read_only)
            .map(|visible| Path::new(&visible.path))
            .collect();
        grants.readable.extend(kept);
        grants.writable.push(&temporary.handle);
        let mut bound = Vec::new();
        for bind in &request.restrictions.binds {
            match bind.access {
                Access::ReadOnly => grants.readable.push(Path::new(&bind.path)),
                Access::ReadWrite => bound.push(crate::jail::open_host_dir(bind.path.as_ref())),
            }
        }
        let bound: Result<Vec<OwnedFd>, _> = bound.into_iter().collect();
        let bound = bound.map_err(|errno| unavailable(format!("cannot bind: {errno}")))?;
        grants.writable.extend(&bound);
        let ruleset = Arc::new(landlock::rules(&grants).map_err(unavailable)?);
        let lent = Lent { ruleset, temporary };
        let mut rules = self.lock();
        if rules.len() >= KEPT_RULES {
            rules.pop_first();
        }
        rules.insert(key, lent.clone());
        Ok(lent)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lent>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words that start the command, and its text where that is too long for a word.
struct Script {
    words: Vec<String>,
    long: Option<OwnedFd>,
}

impl Script {
    fn new(shell: &Path, command: &Command, path: String) -> Result<Self> {
        let shell = shell.to_string_lossy().into_owned();
        let words = match command {
            Command::Shell(line) if line.len() <= LONGEST_ARGUMENT => {
                vec![shell, "-c".to_owned(), line.clone()]
            }
            Command::Shell(line) => {
                let long = written(line.as_bytes()).map_err(|error| unstarted(&error))?;
                return Ok(Self { words: vec![shell], long: Some(long) });
            }
            Command::Argv(words) => {
                let mut words = words.clone();
                if let Some(program) = words.first_mut() {
                    *program = found(program, &path)?;
                }
                words
            }
        };
        Ok(Self { words, long: None })
    }

    fn into_words(mut self, number: i32) -> (Vec<String>, Option<OwnedFd>) {
        if self.long.is_some() {
            self.words.push(format!("/dev/fd/{number}"));
        }
        (self.words, self.long)
    }
}

/// A program by its name, as a shell would look for it.
fn found(program: &str, path: &str) -> Result<String> {
    if program.contains('/') {
        return Ok(program.to_owned());
    }
    let places = path.split(':').map(|directory| format!("{directory}/{program}"));
    places.into_iter().find(|place| is_program(Path::new(place))).ok_or_else(|| {
        let message = format!("no program '{program}' on the path");
        Error::new(Code::ExecError, Kind::NotFound, message)
    })
}

/// A file for one start of the sandbox's program. Its first process has no root of ours, but it is
/// what it was executed from: by way of `/proc/1/exe` a command that runs as that file's owner could
/// change its mode on the host, read-only mounts or not.
fn copied(program: &[u8]) -> Result<OwnedFd> {
    let made = |flags| rustix::fs::memfd_create("bwrap", flags);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels do not know that flag, and need none.
    let copy = made(flags | MemfdFlags::EXEC).or_else(|_| made(flags));
    let whole = copy.map_err(std::io::Error::from).and_then(|copy| {
        let mut file = std::fs::File::from(copy);
        std::io::Write::write_all(&mut file, program)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(OwnedFd::from(file))
    });
    whole.map_err(|error| unavailable(format!("bwrap cannot be run from a copy: {error}")))
}

fn written(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let handle = rustix::fs::memfd_create("command", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = rustix::io::write(&handle, rest)?;
        rest = &rest[length..];
    }
    rustix::fs::seek(&handle, rustix::fs::SeekFrom::Start(0))?;
    Ok(handle)
}

/// Where the working directory is inside a bwrap.
fn inside(scene: &Scene) -> String {
    bwrap::join(&bwrap::join(SANDBOX_ROOT, scene.own().at.as_str()), &scene.cwd_below)
}

/// The command inside a bwrap.
fn sandboxed(
    bwrap: &Bwrap,
    settings: &ExecSettings,
    request: &ExecRequest,
    scene: &Scene,
    words: Vec<String>,
    theirs: &mut Vec<OwnedFd>,
) -> Result<Vec<String>> {
    // A socket in a directory of the host can be reached through a mount that is read-only.
    let sockets = match request.restrictions.binds.is_empty() {
        true => LocalSockets::Allowed,
        false => LocalSockets::Refused,
    };
    let filter = seccomp::filter(Walls::Namespaces, settings.network, sockets);
    let filter = filter.map_err(unavailable)?;
    let mut lend = |bytes: &[u8]| -> Result<i32> {
        let number = i32::try_from(theirs.len()).map_err(|_| unplanned())?;
        theirs.push(filled_pipe(bytes).map_err(|error| unstarted(&error))?);
        Ok(number)
    };
    let home = inside(scene);
    let (users, groups) = names(&home);
    let (filter, users, groups) =
        (lend(&seccomp::bytes(&filter))?, lend(users.as_bytes())?, lend(groups.as_bytes())?);
    let mut checks = Vec::new();
    let mut places: Vec<Placed> = Vec::new();
    for (index, visible) in scene.visible.iter().enumerate() {
        let sandbox = bwrap::join(SANDBOX_ROOT, visible.at.as_str());
        let mut at = vec![sandbox];
        // Absolute paths in commands keep working, unless that would bury the sandbox's own.
        let buries = Path::new(SANDBOX_ROOT).starts_with(&visible.path);
        if index == 0 && !buries {
            at.push(visible.path.clone());
        }
        if visible.contested
            && let Some(identity) = identity_of(&visible.handle)
        {
            // Each is a mount of its own, made at another moment.
            checks.extend(at.iter().map(|at| (at.clone(), identity.clone())));
        }
        for seen in &visible.seen {
            for at in &at {
                checks.push((bwrap::join(at, &seen.below), seen.identity.clone()));
            }
        }
        let empty = visible.covers.iter().filter(|cover| cover.with == With::EmptyFile);
        for cover in empty {
            // What covers it must be there itself, not where a swapped link has led.
            for at in &at {
                checks.push((bwrap::join(at, &cover.below), null_identity()?));
            }
        }
        places.push(Placed {
            source: visible.path.clone(),
            at,
            access: match visible.read_only {
                true => bwrap::Access::ReadOnly,
                false => bwrap::Access::ReadWrite,
            },
            covers: visible.covers.clone(),
        });
    }
    for bind in &request.restrictions.binds {
        places.push(Placed {
            source: bind.path.clone(),
            at: vec![bind.path.clone()],
            access: match bind.access {
                Access::ReadOnly => bwrap::Access::ReadOnly,
                Access::ReadWrite => bwrap::Access::ReadWrite,
            },
            covers: Vec::new(),
        });
    }
    let toolchains: Vec<String> =
        settings.toolchains.iter().filter_map(|path| path.to_str()).map(str::to_owned).collect();
    let terminal = request.terminal.is_some();
    let view = View {
        system: &bwrap.system,
        toolchains: &toolchains,
        places,
        network: settings.network,
        session: if terminal { Session::Terminals } else { Session::Own },
        directory: home,
        filter,
        users,
        groups,
    };
    let mut said = vec![bwrap.path.to_string_lossy().into_owned()];
    said.extend(bwrap::arguments(&view));
    said.push("--".to_owned());
    said.extend(checked(&checks));
    if terminal && bwrap.restores_signals {
        said.extend(["/usr/bin/env", "--default-signal=INT,QUIT"].map(str::to_owned));
    }
    said.extend(words);
    Ok(said)
}

/// Which file covers what must not be seen or made.
fn null_identity() -> Result<String> {
    let null = rustix::fs::stat("/dev/null").map_err(|errno| unstarted(&errno.into()))?;
    Ok(format!("{}:{}", null.st_dev, null.st_ino))
}

/// Words before the command that make sure that what was mounted is what was looked at. Nothing of
/// the command's own, such as its path, has a say in them.
fn checked(checks: &[(String, String)]) -> Vec<String> {
    if checks.is_empty() {
        return Vec::new();
    }
    let paths: Vec<String> = checks.iter().map(|(path, _)| quoted(path)).collect();
    let expected: Vec<&str> = checks.iter().map(|(_, identity)| identity.as_str()).collect();
    let script = format!(
        "s=/usr/bin/stat; [ -x $s ] || s=/bin/stat; \
         [ \"$($s -c %d:%i -- {})\" = {} ] || {{ echo '{SWAPPED}' >&2; exit 126; }}; exec \"$@\"",
        paths.join(" "),
        quoted(&expected.join("\n")),
    );
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The names of users and groups: who runs the command, and nobody.
fn names(home: &str) -> (String, String) {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let name = |id: u32| if id == 0 { "root" } else { "agent" };
    let nobody = (user != 65534).then_some("nobody:x:65534:65534::/:/bin/false\n");
    let users = format!(
        "{}:x:{user}:{group}::{}:/bin/sh\n{}",
        name(user),
        home.replace([':', '\n'], "_"),
        nobody.unwrap_or_default()
    );
    (users, format!("{}:x:{group}:\nnogroup:x:65534:\n", name(group)))
}

fn temporary(settings: &ExecSettings) -> Result<Temporary> {
    let explained = |error: std::io::Error| {
        let place = settings.temporary.display();
        unavailable(format!("no temporary directory can be made in {place}: {error}"))
    };
    use std::hash::{BuildHasher, Hasher};
    use std::os::unix::fs::DirBuilderExt;
    let name = match settings.always_groups() {
        // Removed by the watchdog, if we cannot: it has ended everybody who could still use it.
        true => {
            watchdog::clears(&settings.temporary);
            incarnation::next_name()
        }
        false => {
            let random = std::hash::RandomState::new().build_hasher().finish();
            format!("agent-backend-{random:016x}")
        }
    };
    let path = settings.temporary.join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(explained)?;
    match crate::jail::open_host_dir(&path) {
        Ok(handle) => Ok(Temporary { path, handle }),
        Err(errno) => {
            let _ = std::fs::remove_dir(&path);
            Err(explained(errno.into()))
        }
    }
}

fn root_directory() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/", flags, Mode::empty()).map_err(|errno| unstarted(&errno.into()))
}

fn rlimits(scene: &Scene) -> Vec<Rlimit> {
    let limits = &scene.limits;
    let seconds = |time: std::time::Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let mut rlimits = vec![(libc::RLIMIT_CORE, Some(0))];
    rlimits.push((libc::RLIMIT_CPU, limits.cpu.map(seconds)));
    rlimits.push((libc::RLIMIT_FSIZE, limits.file_size));
    rlimits.push((libc::RLIMIT_NOFILE, limits.open_files));
    if !scene.has_group() {
        rlimits.push((libc::RLIMIT_DATA, limits.memory));
        rlimits.push((libc::RLIMIT_NPROC, limits.processes));
    }
    rlimits
        .into_iter()
        .filter_map(|(resource, value)| Some(Rlimit { resource, value: value? }))
        .collect()
}

fn text(word: &str) -> Result<CString> {
    let odd = |_| Error::new(Code::ExecError, Kind::Invalid, "a word of the command has a NUL");
    CString::new(word).map_err(odd)
}

fn unavailable(cause: String) -> Error {
    Error::new(Code::MissingUtilities, Kind::Unavailable, cause)
}

fn unplanned() -> Error {
    unavailable("the sandbox was not found out about".to_owned())
}

//! A command with its walls around it: program, arguments, environment, handles, rules, filter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::accepted_cache::PassedCheckCache;
use ab_core::command_screen::CommandLineCheckContext;
use ab_core::effective::Isolation;
use ab_core::environment::CodeLoadingVariablePolicy;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{Command, ExecRequest, HostDirectoryAccess};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use super::ends::{Ends, ends, piped, reopenable, unread_output};
use super::private::Private;
use super::scene::{Origin, Scene, identity_of};
use super::settings::ExecSettings;
use super::standing::{Bwrap, Standing};
use super::{Reach, unstarted};
use crate::blocking;
use crate::facilities::program::is_program;
use crate::limits::cgroup::Wanted;
use crate::process::child::{Bond, Devices, Family, Image, Privileges, Rlimit, Terminal};
use crate::process::stream::filled_pipe;
use crate::process::supervise::{Channels, OutputEnd};
use crate::sandbox::bwrap::{self, Placed, SANDBOX_WORKSPACE_PATH, Session, Tmp, View, With};
use crate::sandbox::environment::{self, Base};
use crate::sandbox::landlock::{self, Grants};
use crate::sandbox::seccomp::{self, LocalSockets, Walls};

/// Longest single argument that the kernel takes, less than which there is room for a name.
const LONGEST_ARGUMENT: usize = 120 * 1024;
/// Command lines and inputs longer than this are screened on a thread that may take its time.
const LONG_TEXT: usize = 16 * 1024;
/// Sets of rules that are kept for the next command in the same place.
const KEPT_RULES: usize = 64;
/// The number of the first handle after the three that every program has.
const FIRST_EXTRA: i32 = 3;
/// The number of standard output.
const STDOUT: usize = 1;
/// What a shell says, and with what status it ends, when a directory was swapped while it started.
const SWAPPED: &str = "agent-backend: the workspace changed while the command was started";

/// What it says when the command's own process cannot be made.
const NO_PROCESS: &str =
    "agent-backend: no process can be made for the command: Resource temporarily unavailable";

/// What commands of one driver are lent, and what is made once for several.
#[derive(Debug, Default)]
pub(super) struct Wardrobe {
    rules: Mutex<BTreeMap<String, Arc<OwnedFd>>>,
    /// Lines that were screened, with their roots and directories.
    screened: PassedCheckCache,
}

/// Everything around a command that is not its own request.
pub(super) struct Surroundings<'a> {
    pub(super) settings: &'a ExecSettings,
    pub(super) standing: &'a Standing,
    pub(super) scene: &'a Scene,
    pub(super) placement: Placement,
    pub(super) private: Option<&'a Private>,
}

/// Where a command finds what it may see.
#[derive(Debug)]
pub(super) struct Placement {
    /// Its working directory, which is also its home.
    pub(super) directory: String,
    /// Names below a private `/tmp` on which something is mounted.
    pub(super) mount_points: BTreeSet<String>,
    places: Vec<Placed>,
    toolchains: Vec<String>,
    /// Paths inside, and which file has to be there.
    checks: Vec<(String, String)>,
}

/// A command that is ready to start.
#[derive(Debug)]
pub(super) struct Dressed {
    pub(super) image: Image,
    pub(super) reach: Reach,
    pub(super) channels: Channels,
}

/// What a screen looks at.
struct Screened {
    line: String,
    roots: Vec<String>,
    cwd: String,
    env: BTreeMap<String, String>,
    input: Option<bytes::Bytes>,
}

impl Screened {
    fn confines(&self) -> CommandLineCheckContext<'_> {
        CommandLineCheckContext {
            roots: &self.roots,
            cwd: &self.cwd,
            env: &self.env,
            input: self.input.as_deref(),
            readable: bwrap::SYSTEM,
        }
    }

    fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        let env = self.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let own = [self.line.as_str(), self.cwd.as_str()].into_iter();
        own.chain(self.roots.iter().map(String::as_str)).chain(env)
    }
}

impl Wardrobe {
    /// Forgets the rules of places that are about to be removed.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Looks at the words of a command where no wall stands.
    pub(super) async fn screen(
        &self,
        settings: &ExecSettings,
        standing: &Standing,
        request: &ExecRequest,
        scene: &Scene,
    ) -> Result<()> {
        if scene.origin == Origin::Operator {
            return Ok(());
        }
        match standing.isolation {
            Isolation::Software => {}
            Isolation::Auto | Isolation::Bwrap | Isolation::Landlock | Isolation::None => {
                return Ok(());
            }
        }
        let Some(screen) = settings.screen else { return Err(unplanned()) };
        // Without a sandbox its path is one like any other.
        let own = |alias: &&String| !alias.starts_with(SANDBOX_WORKSPACE_PATH);
        let screened = Screened {
            line: request.command.to_shell_line(),
            roots: scene.aliases.iter().filter(own).cloned().collect(),
            cwd: scene.cwd_below.clone(),
            env: request.env.clone(),
            input: request.declared_stdin.clone(),
        };
        // Input is rare, and may be long.
        if screened.input.is_none() && self.screened.contains(screened.texts()) {
            return Ok(());
        }
        let size = screened.line.len() + screened.input.as_ref().map_or(0, |input| input.len());
        let screened = if size > LONG_TEXT {
            blocking::run(move |_| {
                screen(&screened.line, &screened.confines())?;
                Ok(screened)
            })
            .await?
        } else {
            screen(&screened.line, &screened.confines())?;
            screened
        };
        if screened.input.is_none() {
            self.screened.insert(screened.texts());
        }
        Ok(())
    }

    pub(super) fn dress(
        &self,
        surroundings: Surroundings<'_>,
        request: &ExecRequest,
        cookie: &str,
    ) -> Result<Dressed> {
        let Surroundings { settings, standing, scene, placement, private } = surroundings;
        let Ends { mut theirs, mut ours, terminal } = ends(request)?;
        let is_watched = scene.origin == Origin::Operator && terminal == Terminal::None;
        if is_watched {
            ours.output_end = OutputEnd::Seen;
        }
        let script = Script::new(&standing.shell, &request.command, standing.path(settings))?;
        let cwd = placement.directory.clone();
        let own_home = settings.home.as_deref().map(Path::to_string_lossy);
        let home = own_home.as_deref().map_or_else(|| cwd.clone(), str::to_owned);
        let ruleset = match standing.isolation {
            Isolation::Landlock => Some(self.rules(settings, scene, private)?),
            Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None => None,
        };
        let path = standing.path(settings);
        let base = Base {
            path: &path,
            home: &home,
            cwd: &cwd,
            shell: &standing.shell.to_string_lossy(),
            term: if terminal == Terminal::Controlling { "xterm-256color" } else { "dumb" },
            tmpdir: match standing.isolation {
                Isolation::Landlock => private.and_then(|it| Some(it.tmp.as_ref()?.path.as_str())),
                Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None => None,
            },
            caches: match standing.isolation {
                // What programs keep there belongs to the session and outlives the driver.
                _ if own_home.is_some() => None,
                Isolation::Bwrap => private.map(|_| bwrap::CACHES),
                Isolation::Auto | Isolation::Landlock | Isolation::Software | Isolation::None => {
                    private.map(|private| private.caches.path.as_str())
                }
            },
            toolchains: &settings.toolchains,
            process: cookie,
            code: match (standing.isolation, scene.origin) {
                (Isolation::Bwrap | Isolation::Landlock, _) | (_, Origin::Operator) => {
                    CodeLoadingVariablePolicy::Allowed
                }
                (Isolation::Auto | Isolation::Software | Isolation::None, Origin::Caller) => {
                    CodeLoadingVariablePolicy::Refused
                }
            },
        };
        let mut environment = environment::assemble(&base, &request.env)?;
        let (mut words, long) = script.into_words(FIRST_EXTRA);
        // One more handle would not have a number of one digit.
        let is_watched = is_watched && long.is_none();
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
            family: Family::Shared,
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
                let given = std::mem::take(&mut environment);
                // bwrap starts outside of the walls: a variable that loads code must not act on it.
                let mark = |(name, _): &&(String, String)| name == environment::PROCESS_VARIABLE;
                environment.extend(given.iter().filter(mark).cloned());
                let inside = Inside {
                    bwrap,
                    settings,
                    request,
                    placement,
                    private,
                    home: &home,
                    environment: given,
                };
                ours.output_end = OutputEnd::Unseen;
                if is_watched && let Some(output) = theirs.get_mut(STDOUT) {
                    // bwrap keeps its output open until everything inside has ended.
                    let output = std::mem::replace(output, unread_output()?);
                    ours.output_end = OutputEnd::SeenAfterOutput(output);
                }
                ours.left = Some(sandboxed(inside, &mut words, &mut theirs, &ours.output_end)?);
                image.directory = root_directory()?;
                if bwrap.fixes_devices {
                    let null_input = request.terminal.is_none() && !piped(request);
                    image.devices = Devices::Fixed { null_input };
                }
                if bwrap.own_family {
                    image.family = Family::Own;
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
                image.ruleset = ruleset;
                let filter = seccomp::filter(Walls::Rules, settings.network, LocalSockets::Refused);
                image.filter = Some(filter.map_err(unavailable)?);
            }
            Isolation::Auto | Isolation::Software | Isolation::None => {}
        }
        image.program = text(words.first().map_or("", String::as_str))?;
        image.arguments = words.iter().map(|word| text(word)).collect::<Result<_>>()?;
        image.environment = environment
            .iter()
            .map(|(key, value)| text(&format!("{key}={value}")))
            .collect::<Result<_>>()?;
        image.handles = theirs;
        Ok(Dressed { image, reach, channels: ours })
    }

    /// Rules for what the command may see, made again only where something else is there.
    ///
    /// Everything that others could swap is opened once, here or before, and both the rules and the
    /// key under which they are kept are made of the handles. The rules hold on to these inodes, so
    /// that no other directory gets their numbers while they are kept.
    fn rules(
        &self,
        settings: &ExecSettings,
        scene: &Scene,
        private: Option<&Private>,
    ) -> Result<Arc<OwnedFd>> {
        let visible = scene.visible.iter().map(|it| (&it.handle, it.read_only));
        let bound =
            scene.binds.iter().map(|it| (&it.handle, it.access == HostDirectoryAccess::ReadOnly));
        let lent = private.into_iter().flat_map(|private| {
            let tmp = private.tmp.as_ref().map(|tmp| &tmp.handle);
            [Some(&private.caches.handle), tmp].into_iter().flatten()
        });
        let lent = lent.map(|handle| (handle, false));
        let shown: Vec<(&OwnedFd, bool)> = visible.chain(bound).chain(lent).collect();
        let key = |(handle, read_only): &(&OwnedFd, bool)| {
            Ok(format!("{} {read_only}", identity(handle)?))
        };
        let key: Result<Vec<String>> = shown.iter().map(key).collect();
        let key = key?.join(" ");
        if let Some(ruleset) = self.lock().get(&key) {
            return Ok(ruleset.clone());
        }
        let handles = |wanted: bool| {
            shown.iter().filter(move |(_, read_only)| *read_only == wanted).map(|(it, _)| *it)
        };
        let mut grants = Grants {
            writable: handles(false).collect(),
            readable: handles(true).collect(),
            system: bwrap::SYSTEM.iter().map(Path::new).collect(),
        };
        grants.system.extend(["/etc/passwd", "/etc/group"].map(Path::new));
        grants.system.extend(bwrap::PUBLIC_SETTINGS.iter().map(Path::new));
        grants.system.extend(bwrap::PUBLIC_OPTIONAL_SETTINGS.iter().map(Path::new));
        let toolchains = settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable);
        grants.system.extend(toolchains.map(PathBuf::as_path));
        let ruleset = Arc::new(landlock::rules(&grants)?);
        let mut rules = self.lock();
        if rules.len() >= KEPT_RULES {
            rules.pop_first();
        }
        rules.insert(key, ruleset.clone());
        Ok(ruleset)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OwnedFd>>> {
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
        Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message)
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
    whole.map_err(|error| {
        unavailable(format!("bwrap cannot be run from a copy: {error}")).with_source(error)
    })
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

/// Where a command finds the workspace, its neighbours and what else it may see.
pub(super) fn place(
    settings: &ExecSettings,
    standing: &Standing,
    scene: &Scene,
) -> Result<Placement> {
    let mut placement = Placement {
        directory: scene.cwd_path.clone(),
        mount_points: BTreeSet::new(),
        places: Vec::new(),
        toolchains: Vec::new(),
        checks: Vec::new(),
    };
    if standing.isolation != Isolation::Bwrap {
        return Ok(placement);
    }
    for (index, visible) in scene.visible.iter().enumerate() {
        let sandbox = bwrap::join(SANDBOX_WORKSPACE_PATH, visible.at.as_str());
        let mut at = vec![sandbox];
        // What commands write down, such as the paths in a virtual environment, is true outside too,
        // so they see and start in the host's own path. Unless that would bury the sandbox's own.
        if index == 0 && !bwrap::is_taken(&visible.path) {
            at.push(visible.path.clone());
        }
        if index == 0 {
            // The tree around neighbours is only at the sandbox's path.
            let start = if scene.visible.len() == 1 { at.last() } else { at.first() };
            let start = start.map_or(SANDBOX_WORKSPACE_PATH, String::as_str);
            placement.directory = bwrap::join(start, &scene.cwd_below);
        }
        if visible.contested {
            let identity = identity(&visible.handle)?;
            // Each is a mount of its own, made at another moment.
            placement.checks.extend(at.iter().map(|at| (at.clone(), identity.clone())));
        }
        for seen in &visible.seen {
            for at in &at {
                placement.checks.push((bwrap::join(at, &seen.below), seen.identity.clone()));
            }
        }
        let empty = visible.covers.iter().filter(|cover| cover.with == With::EmptyFile);
        for cover in empty {
            // What covers it must be there itself, not where a swapped link has led.
            for at in &at {
                placement.checks.push((bwrap::join(at, &cover.below), null_identity()?));
            }
        }
        placement.places.push(Placed {
            source: visible.path.clone(),
            at,
            access: if visible.read_only {
                bwrap::Access::ReadOnly
            } else {
                bwrap::Access::ReadWrite
            },
            covers: visible.covers.clone(),
        });
    }
    for bind in &scene.binds {
        if bind.contested {
            placement.checks.push((bind.at.clone(), identity(&bind.handle)?));
        }
        placement.places.push(Placed {
            source: bind.path.clone(),
            at: vec![bind.at.clone()],
            access: match bind.access {
                HostDirectoryAccess::ReadOnly => bwrap::Access::ReadOnly,
                HostDirectoryAccess::ReadWrite => bwrap::Access::ReadWrite,
            },
            covers: Vec::new(),
        });
    }
    let readable = settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable);
    placement.toolchains = readable.filter_map(|path| Some(path.to_str()?.to_owned())).collect();
    placement.mount_points = bwrap::mount_points(&placement.places, &placement.toolchains);
    Ok(placement)
}

/// What a command inside a bwrap is made of.
struct Inside<'a> {
    bwrap: &'a Bwrap,
    settings: &'a ExecSettings,
    request: &'a ExecRequest,
    placement: Placement,
    private: Option<&'a Private>,
    home: &'a str,
    /// The command's variables.
    environment: Vec<(String, String)>,
}

/// Puts the command inside a bwrap. Gives the pipe in which it is said that processes were left.
fn sandboxed(
    inside: Inside<'_>,
    words: &mut Vec<String>,
    theirs: &mut Vec<OwnedFd>,
    output_end: &OutputEnd,
) -> Result<OwnedFd> {
    let Inside { bwrap, settings, request, placement, private, home, environment } = inside;
    // A socket in a directory of the host can be reached through a mount that is read-only.
    let sockets = if request.restrictions.binds.is_empty() {
        LocalSockets::Allowed
    } else {
        LocalSockets::Refused
    };
    let filter = seccomp::filter(Walls::Namespaces, settings.network, sockets);
    let filter = filter.map_err(unavailable)?;
    let mut lend = |bytes: &[u8]| -> Result<i32> {
        let number = i32::try_from(theirs.len()).map_err(|_| unplanned())?;
        theirs.push(filled_pipe(bytes).map_err(|error| unstarted(&error))?);
        Ok(number)
    };
    let (users, groups) = names(home);
    let (filter, users, groups) =
        (lend(&seccomp::bytes(&filter))?, lend(users.as_bytes())?, lend(groups.as_bytes())?);
    let mut checks = placement.checks;
    let writable = |place: &&Placed| place.access == bwrap::Access::ReadWrite;
    if let Some(private) = private
        && placement.places.iter().filter(writable).any(|place| private.lies_in(&place.source))
    {
        // Commands that see the host's directory around it could swap it.
        checks.push((bwrap::CACHES.to_owned(), identity(&private.caches.handle)?));
        if let Some(tmp) = &private.tmp {
            checks.push(("/tmp".to_owned(), identity(&tmp.handle)?));
        }
    }
    let terminal = request.terminal.is_some();
    let view = View {
        system: &bwrap.system,
        settings: &bwrap::PUBLIC_SETTINGS,
        toolchains: &placement.toolchains,
        tmp: match private.and_then(|private| private.tmp.as_ref()) {
            Some(tmp) => Tmp::Kept(&tmp.path),
            None => Tmp::Fresh,
        },
        caches: private.map(|private| private.caches.path.as_str()),
        places: placement.places,
        network: settings.network,
        session: if terminal { Session::Terminals } else { Session::Own },
        directory: placement.directory,
        filter,
        users,
        groups,
    };
    let mut said = vec![bwrap.path.to_string_lossy().into_owned()];
    said.extend(bwrap::arguments(&view));
    let given = i32::try_from(theirs.len()).map_err(|_| unplanned())?;
    let (special, plain): (Vec<_>, Vec<_>) =
        environment.into_iter().partition(|(name, _)| is_special(name));
    for (name, value) in special {
        said.extend(["--setenv".to_owned(), name, value]);
    }
    let text = exported(&plain);
    theirs.push(written(text.as_bytes()).map_err(|error| unstarted(&error))?);
    said.push("--".to_owned());
    let (left, note) = note_pipe().map_err(|error| unstarted(&error))?;
    let number = theirs.len();
    theirs.push(note);
    let output = match output_end {
        OutputEnd::Unseen | OutputEnd::Seen => None,
        OutputEnd::SeenAfterOutput(output) => {
            theirs.push(reopenable(output)?);
            Some(number + 1)
        }
    };
    said.extend(watched(&checks, given, number, output));
    if terminal && bwrap.restores_signals {
        said.extend(["/usr/bin/env", "--default-signal=INT,QUIT"].map(str::to_owned));
    }
    said.append(words);
    *words = said;
    Ok(left)
}

/// A pipe that neither end waits for.
fn note_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

fn identity(handle: &OwnedFd) -> Result<String> {
    identity_of(handle).map_err(|errno| unstarted(&errno.into()))
}

/// Which file covers what must not be seen or made.
fn null_identity() -> Result<String> {
    let null = rustix::fs::stat("/dev/null").map_err(|errno| unstarted(&errno.into()))?;
    Ok(format!("{}:{}", null.st_dev, null.st_ino))
}

/// Words before the command: a shell that makes sure that what was mounted is what was looked at, runs
/// the command, and then says whether other processes are still there. Everything ends with it, so
/// nothing outside could look any more. The shell has none of the command's variables: they are read
/// from the handle `given`, after the check, by the process that becomes the command.
///
/// Where the end of the command's output is watched for, the command opens it itself, by the handle `output`: bwrap
/// and this shell would hold it open.
fn watched(
    checks: &[(String, String)],
    given: i32,
    note: usize,
    output: Option<usize>,
) -> Vec<String> {
    let mut script = String::new();
    if !checks.is_empty() {
        let paths: Vec<String> = checks.iter().map(|(path, _)| quoted(path)).collect();
        let expected: Vec<&str> = checks.iter().map(|(_, identity)| identity.as_str()).collect();
        script = format!(
            "s=/usr/bin/stat; [ -x $s ] || s=/bin/stat; \
             [ \"$($s -c %d:%i -- {})\" = {} ] || {{ echo '{SWAPPED}' >&2; exit 126; }}; ",
            paths.join(" "),
            quoted(&expected.join("\n")),
        );
    }
    // POSIX shells know handles of one digit only: this one is 9 at most.
    let errors = output.unwrap_or(note) + 1;
    let opened = output.map(|output| format!(" >/dev/fd/{output} {output}<&-"));
    let opened = opened.unwrap_or_default();
    // Signals for the command reach this shell too, which waits for what the command makes of them.
    script.push_str(&format!(
        r#"trap : 1 2 3 5 6 10 12 13 14 15 16 24 25 26 27 29 30 31
exec {errors}>&2 2>/dev/null
code=
trap '[ -n "$code" ] || echo "{NO_PROCESS}" >&{errors}' 0
(. /dev/fd/{given}; exec 2>&{errors}{opened} {errors}>&- {note}>&- {given}<&-; exec "$@")
code=$?
for p in /proc/[0-9]*; do
  case ${{p#/proc/}} in 1|$$) continue;; esac
  read -r line < "$p/stat" || continue
  case $line in *') Z '*|*') X '*) ;; *) echo >&{note}; break;; esac
done
exit $code"#
    ));
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
}

/// Whether a shell refuses to assign any value to this variable, or some values.
fn is_special(name: &str) -> bool {
    ["BASHOPTS", "EUID", "GROUPS", "LINENO", "OPTIND", "PPID", "SHELLOPTS", "UID"].contains(&name)
        || name.starts_with("BASH_VERSINFO")
}

/// Shell text that sets variables.
fn exported(environment: &[(String, String)]) -> String {
    let line = |(name, value): &(String, String)| format!("export {name}={}\n", quoted(value));
    environment.iter().map(line).collect()
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

fn root_directory() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/", flags, Mode::empty()).map_err(|errno| unstarted(&errno.into()))
}

/// The kernel counts CPU time in nanoseconds, and a longer limit would wrap around to a short one.
const LONGEST_CPU: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

fn rlimits(scene: &Scene) -> Vec<Rlimit> {
    let limits = &scene.limits;
    let seconds = |time: Duration| {
        let time = time.min(LONGEST_CPU);
        time.as_secs() + u64::from(time.subsec_nanos() > 0)
    };
    let mut rlimits = vec![(libc::RLIMIT_CORE, Some(0))];
    rlimits.push((libc::RLIMIT_CPU, limits.cpu.map(seconds)));
    rlimits.push((libc::RLIMIT_FSIZE, limits.file_size));
    rlimits.push((libc::RLIMIT_NOFILE, limits.open_files));
    // For want of a group, each process for itself.
    let Wanted { memory, processes } = scene.grouped;
    rlimits.push((libc::RLIMIT_DATA, limits.memory.filter(|_| memory.is_none())));
    rlimits.push((libc::RLIMIT_NPROC, limits.processes.filter(|_| processes.is_none())));
    rlimits
        .into_iter()
        .filter_map(|(resource, value)| Some(Rlimit { resource, value: value? }))
        .collect()
}

fn text(word: &str) -> Result<CString> {
    let odd =
        |_| Error::new(ErrorCode::ExecError, ErrorKind::Invalid, "a word of the command has a NUL");
    CString::new(word).map_err(odd)
}

pub(super) fn unavailable(cause: String) -> Error {
    Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, cause)
}

fn unplanned() -> Error {
    unavailable("the sandbox was not found out about".to_owned())
}

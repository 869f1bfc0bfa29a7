//! Builds the process image of a command: its program, arguments, environment, handles, Landlock
//! rules and seccomp filter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::command_line_check::CommandLineCheckContext;
use ab_core::effective_policy::Isolation;
use ab_core::environment::CodeLoadingEnvVariablePolicy;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::passed_check_cache::PassedCheckCache;
use ab_core::process::{Command, ExecRequest, HostDirectoryAccess};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use super::ends::{Ends, ends, piped, reopenable, unread_output};
use super::private::Private;
use super::probe::{Bwrap, ProbedIsolation};
use super::rlimits::rlimits;
use super::settings::LocalExecSettings;
use super::visible_files::{Origin, VisibleFiles, identity_of};
use super::{Reach, unstarted};
use crate::blocking;
use crate::host_features::program::is_program;
use crate::process::child::{Bond, Devices, Family, Image, Overlay, Privileges, Terminal};
use crate::process::stream::filled_pipe;
use crate::process::supervise::{Channels, LEFT_PROCESSES, OutputEnd};
use crate::sandbox::bwrap::{self, Placed, SANDBOX_WORKSPACE_PATH, Session, Tmp, View, With};
use crate::sandbox::environment::{self, Base};
use crate::sandbox::landlock::{self, Grants};
use crate::sandbox::seccomp::{self, IsolatedBy, LocalSockets};

/// Maximum length, in bytes, of a command line that is passed as one argument. The kernel accepts
/// slightly more.
const LONGEST_ARGUMENT: usize = 120 * 1024;
/// Command lines and inputs that are longer than this, in bytes, are checked on a blocking thread.
const LONG_TEXT: usize = 16 * 1024;
/// Number of Landlock rulesets that are kept for later commands.
const KEPT_RULES: usize = 64;
/// The number of the first file descriptor after standard input, output and error.
const FIRST_EXTRA: i32 = 3;
/// The file descriptor number of standard output.
const STDOUT: usize = 1;
/// The message that the wrapper shell prints if a directory was replaced while the command started.
/// The shell then exits with 126.
const SWAPPED: &str = "agent-backend: the workspace changed while the command was started";

/// The message that the wrapper shell prints if it cannot fork a process for the command.
const NO_PROCESS: &str =
    "agent-backend: no process can be made for the command: Resource temporarily unavailable";

/// Builds images. Keeps the data that the commands of one driver share. These are Landlock
/// rulesets, and command lines that passed the check.
#[derive(Debug, Default)]
pub(super) struct ImageBuilder {
    rules: Mutex<BTreeMap<String, Arc<OwnedFd>>>,
    /// Command lines that passed the check, with their roots, directories and variables.
    screened: PassedCheckCache,
}

/// Everything except the request that determines a command's image.
pub(super) struct ImageInputs<'a> {
    pub(super) settings: &'a LocalExecSettings,
    pub(super) probed: &'a ProbedIsolation,
    pub(super) visible_files: &'a VisibleFiles,
    pub(super) sandbox_paths: SandboxPaths,
    pub(super) private: Option<&'a Private>,
    pub(super) overlays: Arc<[Overlay]>,
    pub(super) sockets: LocalSockets,
}

/// The paths at which a command finds the files that it may see.
#[derive(Debug)]
pub(super) struct SandboxPaths {
    /// The command's working directory. Unless the settings name a home, it is also the command's
    /// home.
    pub(super) directory: String,
    /// Names below a private `/tmp` that are used as mount points.
    pub(super) mount_points: BTreeSet<String>,
    places: Vec<Placed>,
    toolchains: Vec<String>,
    /// Paths inside the sandbox, each with the identity of the file that must be at that path.
    checks: Vec<(String, String)>,
}

/// The process image of a command that is ready to start.
#[derive(Debug)]
pub(super) struct BuiltImage {
    pub(super) image: Image,
    pub(super) reach: Reach,
    pub(super) channels: Channels,
}

/// The input of the check of a command line: the line itself, its roots, directory, variables and
/// standard input.
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
            stdin: self.input.as_deref(),
            readable_dirs: bwrap::SYSTEM,
        }
    }

    fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        let env = self.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let own = [self.line.as_str(), self.cwd.as_str()].into_iter();
        own.chain(self.roots.iter().map(String::as_str)).chain(env)
    }
}

impl ImageBuilder {
    /// Drops the cached rulesets, because their directories are about to be removed.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Checks the command line if no kernel mechanism isolates the command.
    pub(super) async fn screen(
        &self,
        settings: &LocalExecSettings,
        probed: &ProbedIsolation,
        request: &ExecRequest,
        visible_files: &VisibleFiles,
    ) -> Result<()> {
        if visible_files.origin == Origin::Operator {
            return Ok(());
        }
        match probed.isolation {
            Isolation::Software => {}
            Isolation::Auto | Isolation::Bwrap | Isolation::Landlock | Isolation::None => {
                return Ok(());
            }
        }
        let Some(screen) = settings.command_line_check else { return Err(unplanned()) };
        // Without a sandbox, this path does not lead to the workspace.
        let own = |alias: &&String| !alias.starts_with(SANDBOX_WORKSPACE_PATH);
        let screened = Screened {
            line: request.command.to_shell_line(),
            roots: visible_files.aliases.iter().filter(own).cloned().collect(),
            cwd: visible_files.cwd_below.clone(),
            env: request.env.clone(),
            input: request.stdin_for_guards.clone(),
        };
        // Only results for commands without input are cached. Commands with input are rare, and the
        // input may be long.
        if screened.input.is_none() && self.screened.has_passed(screened.texts()) {
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
            self.screened.add_passed(screened.texts());
        }
        Ok(())
    }

    pub(super) fn build_image(
        &self,
        image_inputs: ImageInputs<'_>,
        request: &ExecRequest,
        cookie: &str,
    ) -> Result<BuiltImage> {
        let ImageInputs { settings, probed, visible_files, .. } = image_inputs;
        let ImageInputs { sandbox_paths, private, overlays, sockets, .. } = image_inputs;
        let Ends { mut theirs, mut ours, terminal } = ends(request)?;
        let is_watched = visible_files.origin == Origin::Operator && terminal == Terminal::None;
        if is_watched {
            ours.output_end = OutputEnd::Seen;
        }
        let script = Script::new(&probed.shell, &request.command, probed.path(settings))?;
        let cwd = sandbox_paths.directory.clone();
        let own_home = settings.home.as_deref().map(Path::to_string_lossy);
        let home = own_home.as_deref().map_or_else(|| cwd.clone(), str::to_owned);
        let ruleset = match probed.isolation {
            Isolation::Landlock => Some(self.rules(settings, visible_files, private)?),
            Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None => None,
        };
        let path = probed.path(settings);
        let base = Base {
            path: &path,
            home: &home,
            cwd: &cwd,
            shell: &probed.shell.to_string_lossy(),
            term: if terminal == Terminal::Controlling { "xterm-256color" } else { "dumb" },
            tmpdir: match probed.isolation {
                Isolation::Landlock => private.and_then(|it| Some(it.tmp.as_ref()?.path.as_str())),
                Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None => None,
            },
            caches: match probed.isolation {
                // If a home is configured, programs keep their caches in the home, which outlives
                // the driver.
                _ if own_home.is_some() => None,
                Isolation::Bwrap => private.map(|_| bwrap::CACHES),
                Isolation::Auto | Isolation::Landlock | Isolation::Software | Isolation::None => {
                    private.map(|private| private.caches.path.as_str())
                }
            },
            toolchains: &settings.toolchains,
            process: cookie,
            code: match (probed.isolation, visible_files.origin) {
                (Isolation::Bwrap | Isolation::Landlock, _) | (_, Origin::Operator) => {
                    CodeLoadingEnvVariablePolicy::Allowed
                }
                (Isolation::Auto | Isolation::Software | Isolation::None, Origin::Caller) => {
                    CodeLoadingEnvVariablePolicy::Refused
                }
            },
        };
        let mut environment = environment::assemble(&base, &request.env)?;
        let (mut words, long) = script.into_words(FIRST_EXTRA);
        // One more file descriptor would get a number of two digits, which POSIX shells do not
        // accept. So the output is not watched in this case.
        let is_watched = is_watched && long.is_none();
        theirs.extend(long);
        let mut image = Image {
            program: CString::default(),
            executable: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: visible_files.cwd.try_clone().map_err(|error| unstarted(&error))?,
            devices: Devices::Shared,
            overlays,
            handles: Vec::new(),
            terminal,
            bond: Bond::EndsWithUs,
            family: Family::Shared,
            ignored: &[],
            rlimits: rlimits(visible_files),
            groups: Vec::new(),
            privileges: Privileges::Keep,
            ruleset: None,
            filter: None,
        };
        let mut reach = Reach::Leader;
        match probed.isolation {
            Isolation::Bwrap => {
                let Some(bwrap) = &probed.bwrap else { return Err(unplanned()) };
                let given = std::mem::take(&mut environment);
                // bwrap itself starts outside of the sandbox, so variables that load code must not
                // affect it.
                let mark = |(name, _): &&(String, String)| name == environment::PROCESS_VARIABLE;
                environment.extend(given.iter().filter(mark).cloned());
                let inside = Inside {
                    bwrap,
                    settings,
                    request,
                    sandbox_paths,
                    private,
                    sockets,
                    home: &home,
                    environment: given,
                };
                ours.output_end = OutputEnd::Unseen;
                if is_watched && let Some(output) = theirs.get_mut(STDOUT) {
                    // bwrap keeps its output open until everything inside has ended. So bwrap gets
                    // another output here.
                    let output = std::mem::replace(output, unread_output()?);
                    ours.output_end = OutputEnd::SeenAfterOutput(output);
                }
                ours.report = Some(sandboxed(inside, &mut words, &mut theirs, &ours.output_end)?);
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
                    // The terminal sends signals to its whole foreground group, which includes
                    // bwrap. If a signal ended bwrap, the command would end with it.
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
                let filter =
                    seccomp::filter(IsolatedBy::Rules, settings.network, LocalSockets::Refused);
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
        Ok(BuiltImage { image, reach, channels: ours })
    }

    /// Returns the Landlock rules for what the command may see. They are cached by the inodes of
    /// the visible directories.
    ///
    /// Every directory that another process could replace is opened only once, here or earlier.
    /// Both the rules and the cache key are made from these handles. The rules keep the inodes
    /// alive, so no other directory can get the same inode numbers while the rules are cached.
    fn rules(
        &self,
        settings: &LocalExecSettings,
        visible_files: &VisibleFiles,
        private: Option<&Private>,
    ) -> Result<Arc<OwnedFd>> {
        let visible = visible_files.visible.iter().map(|it| (&it.handle, it.read_only));
        let bound = visible_files
            .binds
            .iter()
            .map(|it| (&it.handle, it.access == HostDirectoryAccess::ReadOnly));
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
        let toolchains = settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable_paths);
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

/// The program and the arguments that start the command. A command line that is too long for one
/// argument is passed in the file `long`.
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

/// Looks up a program in the directories of `path`, as a shell does.
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

/// Creates an in-memory copy of bwrap for one start.
///
/// Inside the sandbox, `/proc/1/exe` leads to the file that bwrap was executed from. A command that
/// runs as the owner of this file could change the mode of the file on the host, even through
/// read-only mounts.
fn copied(program: &[u8]) -> Result<OwnedFd> {
    let made = |flags| rustix::fs::memfd_create("bwrap", flags);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels reject this flag, and the copy is executable there without it.
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

/// Decides at which paths a command sees the workspace, the other mounted workspaces, and host
/// directories.
pub(super) fn place(
    settings: &LocalExecSettings,
    probed: &ProbedIsolation,
    visible_files: &VisibleFiles,
) -> Result<SandboxPaths> {
    let mut sandbox_paths = SandboxPaths {
        directory: visible_files.cwd_path.clone(),
        mount_points: BTreeSet::new(),
        places: Vec::new(),
        toolchains: Vec::new(),
        checks: Vec::new(),
    };
    if probed.isolation != Isolation::Bwrap {
        return Ok(sandbox_paths);
    }
    for (index, visible) in visible_files.visible.iter().enumerate() {
        let sandbox = bwrap::join(SANDBOX_WORKSPACE_PATH, visible.at.as_str());
        let mut at = vec![sandbox];
        // Commands also see the workspace at its host path, and start there. Paths that commands
        // write to files, such as in a virtual environment, are then also valid outside of the
        // sandbox. The host path is not used if the sandbox itself needs this path.
        if index == 0 && !bwrap::is_taken(&visible.path) {
            at.push(visible.path.clone());
        }
        if index == 0 {
            // If other workspaces are mounted beside this one, the command starts at the sandbox's
            // path, because only the tree at this path contains the other workspaces.
            let start = if visible_files.visible.len() == 1 { at.last() } else { at.first() };
            let start = start.map_or(SANDBOX_WORKSPACE_PATH, String::as_str);
            sandbox_paths.directory = bwrap::join(start, &visible_files.cwd_below);
        }
        if visible.contested {
            let identity = identity(&visible.handle)?;
            // Check each path, because each is a separate mount that is made at a different moment.
            sandbox_paths.checks.extend(at.iter().map(|at| (at.clone(), identity.clone())));
        }
        for seen in &visible.seen {
            for at in &at {
                sandbox_paths.checks.push((bwrap::join(at, &seen.below), seen.identity.clone()));
            }
        }
        let empty = visible.covers.iter().filter(|cover| cover.with == With::EmptyFile);
        for cover in empty {
            // Check that the cover is at exactly this path. If a link had replaced the path, the
            // cover would be at the target of the link.
            for at in &at {
                sandbox_paths.checks.push((bwrap::join(at, &cover.below), null_identity()?));
            }
        }
        sandbox_paths.places.push(Placed {
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
    for bind in &visible_files.binds {
        if bind.contested {
            sandbox_paths.checks.push((bind.at.clone(), identity(&bind.handle)?));
        }
        sandbox_paths.places.push(Placed {
            source: bind.path.clone(),
            at: vec![bind.at.clone()],
            access: match bind.access {
                HostDirectoryAccess::ReadOnly => bwrap::Access::ReadOnly,
                HostDirectoryAccess::ReadWrite => bwrap::Access::ReadWrite,
            },
            covers: Vec::new(),
        });
    }
    let readable = settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable_paths);
    sandbox_paths.toolchains =
        readable.filter_map(|path| Some(path.to_str()?.to_owned())).collect();
    sandbox_paths.mount_points =
        bwrap::mount_points(&sandbox_paths.places, &sandbox_paths.toolchains);
    Ok(sandbox_paths)
}

/// The arguments of [`sandboxed`].
struct Inside<'a> {
    bwrap: &'a Bwrap,
    settings: &'a LocalExecSettings,
    request: &'a ExecRequest,
    sandbox_paths: SandboxPaths,
    private: Option<&'a Private>,
    sockets: LocalSockets,
    home: &'a str,
    /// The environment variables of the command.
    environment: Vec<(String, String)>,
}

/// Wraps the command in a call of bwrap. Returns the pipe through which the wrapper shell reports
/// how the command ended.
fn sandboxed(
    inside: Inside<'_>,
    words: &mut Vec<String>,
    theirs: &mut Vec<OwnedFd>,
    output_end: &OutputEnd,
) -> Result<OwnedFd> {
    let Inside { bwrap, settings, request, sandbox_paths, private, sockets, home, environment } =
        inside;
    let filter = seccomp::filter(IsolatedBy::Namespaces, settings.network, sockets);
    let filter = filter.map_err(unavailable)?;
    let mut lend = |bytes: &[u8]| -> Result<i32> {
        let number = i32::try_from(theirs.len()).map_err(|_| unplanned())?;
        theirs.push(filled_pipe(bytes).map_err(|error| unstarted(&error))?);
        Ok(number)
    };
    let (users, groups) = names(home);
    let (filter, users, groups) =
        (lend(&seccomp::bytes(&filter))?, lend(users.as_bytes())?, lend(groups.as_bytes())?);
    let mut checks = sandbox_paths.checks;
    let writable = |place: &&Placed| place.access == bwrap::Access::ReadWrite;
    if let Some(private) = private
        && sandbox_paths.places.iter().filter(writable).any(|place| private.lies_in(&place.source))
    {
        // Check the private directories, because commands can write to a directory above them and
        // could replace them.
        checks.push((bwrap::CACHES.to_owned(), identity(&private.caches.handle)?));
        if let Some(tmp) = &private.tmp {
            checks.push(("/tmp".to_owned(), identity(&tmp.handle)?));
        }
    }
    let terminal = request.terminal.is_some();
    let view = View {
        system: &bwrap.system,
        settings: &bwrap::PUBLIC_SETTINGS,
        toolchains: &sandbox_paths.toolchains,
        tmp: match private.and_then(|private| private.tmp.as_ref()) {
            Some(tmp) => Tmp::Kept(&tmp.path),
            None => Tmp::Fresh,
        },
        caches: private.map(|private| private.caches.path.as_str()),
        places: sandbox_paths.places,
        network: settings.network,
        session: if terminal { Session::Terminals } else { Session::Own },
        directory: sandbox_paths.directory,
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
    let (report, note) = note_pipe().map_err(|error| unstarted(&error))?;
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
    Ok(report)
}

/// Creates a pipe whose two ends are nonblocking.
fn note_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

fn identity(handle: &OwnedFd) -> Result<String> {
    identity_of(handle).map_err(|errno| unstarted(&errno.into()))
}

/// Returns the device and inode of `/dev/null`. It is mounted over paths that commands must not see
/// or create.
fn null_identity() -> Result<String> {
    let null = rustix::fs::stat("/dev/null").map_err(|errno| unstarted(&errno.into()))?;
    Ok(format!("{}:{}", null.st_dev, null.st_ino))
}

/// Returns the words to put before the command. They start a shell that first checks that each
/// mount shows the expected file. The shell then runs the command, and at the end reports whether
/// other processes are still running. All processes in the sandbox end together with this shell, so
/// nothing outside could find them later. The shell first reports that it runs.
///
/// The shell has none of the command's variables. After the check, the process that becomes the
/// command reads the variables from the handle `given`.
///
/// If we watch for the end of the command's output, the command itself opens the output through the
/// handle `output`. If bwrap and this shell opened the output, they would keep it open.
fn watched(
    checks: &[(String, String)],
    given: i32,
    note: usize,
    output: Option<usize>,
) -> Vec<String> {
    // If this report is missing, bwrap itself has failed.
    let mut script = format!("echo >&{note}; ");
    if !checks.is_empty() {
        let paths: Vec<String> = checks.iter().map(|(path, _)| quoted(path)).collect();
        let expected: Vec<&str> = checks.iter().map(|(_, identity)| identity.as_str()).collect();
        script.push_str(&format!(
            "s=/usr/bin/stat; [ -x $s ] || s=/bin/stat; \
             [ \"$($s -c %d:%i -- {})\" = {} ] || {{ echo '{SWAPPED}' >&2; exit 126; }}; ",
            paths.join(" "),
            quoted(&expected.join("\n")),
        ));
    }
    // POSIX shells accept only file descriptor numbers of one digit. This number is at most 9.
    let errors = output.unwrap_or(note) + 1;
    let opened = output.map(|output| format!(" >/dev/fd/{output} {output}<&-"));
    let opened = opened.unwrap_or_default();
    // Signals for the command also reach this shell. The shell catches them and waits for the
    // command's exit.
    script.push_str(&format!(
        r#"trap : 1 2 3 5 6 10 12 13 14 15 16 24 25 26 27 29 30 31
exec {errors}>&2 2>/dev/null
code=
trap '[ -n "$code" ] || echo "{NO_PROCESS}" >&{errors}' 0
(. /dev/fd/{given}; exec 2>&{errors}{opened} {errors}>&- {note}>&- {given}<&-; exec "$@")
code=$?
[ "$code" != 137 ] || times >&{note}
for p in /proc/[0-9]*; do
  case ${{p#/proc/}} in 1|$$) continue;; esac
  read -r line < "$p/stat" || continue
  case $line in *') Z '*|*') X '*) ;; *) echo {LEFT_PROCESSES} >&{note}; break;; esac
done
exit $code"#
    ));
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
}

/// Returns whether a shell refuses to assign some or all values to this variable.
fn is_special(name: &str) -> bool {
    ["BASHOPTS", "EUID", "GROUPS", "LINENO", "OPTIND", "PPID", "SHELLOPTS", "UID"].contains(&name)
        || name.starts_with("BASH_VERSINFO")
}

/// Returns shell text that exports the variables.
fn exported(environment: &[(String, String)]) -> String {
    let line = |(name, value): &(String, String)| format!("export {name}={}\n", quoted(value));
    environment.iter().map(line).collect()
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the contents of `/etc/passwd` and `/etc/group`. They name the user of the command and
/// the overflow user, which is the owner that the kernel shows for files of unmapped users.
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

fn text(word: &str) -> Result<CString> {
    let odd = |_| {
        Error::new(
            ErrorCode::ExecError,
            ErrorKind::Invalid,
            "a word of the command contains a NUL byte",
        )
    };
    CString::new(word).map_err(odd)
}

fn unavailable(cause: String) -> Error {
    Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, cause)
}

fn unplanned() -> Error {
    unavailable("the state of the sandbox is unknown".to_owned())
}

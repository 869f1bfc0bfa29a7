//! Hides the secrets in the arguments and environment of this process from other processes.
//!
//! Commands without isolation run as the same user. They can read in `/proc/PID/cmdline` and
//! `/proc/PID/environ` with which arguments and environment a process was started. Changing the
//! environment later does not change these files. Therefore this module overwrites the secrets in
//! memory at the start. In addition, a process that holds a secret is made undumpable, so that
//! other processes of the same user cannot read `/proc/PID/mem` and similar files. Root can still
//! read the memory of any process.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::terminal::talk;

/// The environment variable with the token. Other users of the host cannot see it in the list of
/// processes.
pub(crate) const TOKEN_VARIABLE: &str = "AGENT_BACKEND_AUTH_TOKEN";
/// Flags whose value may be a secret.
const SECRET_FLAGS: [&str; 4] = ["--auth-token", "--ssh-users", "--header", "--token"];

/// The command that has a short flag for its token, and this flag. Other commands use this flag for
/// something else.
const SHORT_TOKEN: (&[u8], &[u8]) = (b"server", b"-t");

/// The token from the environment. This is the only copy, because [`take`] removes the token from
/// the environment.
static TOKEN: OnceLock<Option<OsString>> = OnceLock::new();

/// Removes secrets from the environment and the arguments of this process. Must be called while
/// there is only one thread, after the arguments were copied.
pub(crate) fn take(arguments: &[OsString]) {
    let token = TOKEN.get_or_init(|| env::var_os(TOKEN_VARIABLE));
    let in_arguments = !secrets_in(&to_bytes(arguments)).is_empty();
    if token.is_none() && !in_arguments {
        return;
    }
    if let Err(error) = overwrite() {
        talk(&format!(
            "warning: commands without a sandbox can read secrets from the arguments of this program: {error}\n"
        ));
    }
    shield();
}

/// The token from the environment, if there was one.
pub(crate) fn token() -> Option<OsString> {
    TOKEN.get_or_init(|| env::var_os(TOKEN_VARIABLE)).clone()
}

/// Makes this process undumpable, so that other processes of the same user cannot read the secret
/// in its memory.
pub(crate) fn shield() {
    // This cannot fail: a process can always make itself undumpable.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Overwrites secrets in the memory that other processes can read through the kernel.
fn overwrite() -> io::Result<()> {
    let regions = Regions::find()?;
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    // Overwriting is sound, because no references into these strings exist: Rust and libc copy what
    // they read from them. An empty entry counts as absent.
    let environment = regions.environment.read(&memory)?;
    for (start, length) in token_entries(&environment) {
        memory.write_all_at(&vec![0; length], regions.environment.start + start as u64)?;
    }
    let arguments = regions.arguments.read(&memory)?;
    for (start, length) in secrets_in(&arguments) {
        memory.write_all_at(&vec![b'x'; length], regions.arguments.start + start as u64)?;
    }
    Ok(())
}

/// The memory regions in which the kernel placed the arguments and the environment of this process.
struct Regions {
    arguments: Region,
    environment: Region,
}

struct Region {
    start: u64,
    end: u64,
}

impl Regions {
    fn find() -> io::Result<Regions> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let parsed = Regions::parse(&stat);
        parsed.ok_or_else(|| io::Error::other("/proc/self/stat has no places of arguments"))
    }

    /// Parses the fields 48 to 51 of proc(5). The program name in field 2 may contain spaces.
    fn parse(stat: &str) -> Option<Regions> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let region = |start, end| match (field(start)?, field(end)?) {
            (start, end) if 0 < start && start <= end => Some(Region { start, end }),
            _ => None,
        };
        Some(Regions { arguments: region(48, 49)?, environment: region(50, 51)? })
    }
}

impl Region {
    fn read(&self, memory: &File) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.end - self.start).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        memory.read_exact_at(&mut bytes, self.start)?;
        Ok(bytes)
    }
}

/// The start and length of each environment entry of the token's variable, including the name.
fn token_entries(environment: &[u8]) -> Vec<(usize, usize)> {
    let is_token = |entry: &[u8]| {
        let value = entry.strip_prefix(TOKEN_VARIABLE.as_bytes());
        value.is_some_and(|value| value.starts_with(b"="))
    };
    entries(environment)
        .filter(|(_, entry)| is_token(entry))
        .map(|(start, entry)| (start, entry.len()))
        .collect()
}

/// The start and length of each value of a secret flag. `arguments` are strings that end with NUL.
fn secrets_in(arguments: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut value_follows = false;
    let has_short_token = entries(arguments).nth(1).is_some_and(|(_, word)| word == SHORT_TOKEN.0);
    for (start, argument) in entries(arguments).skip(1) {
        if value_follows {
            found.push((start, argument.len()));
            value_follows = false;
            continue;
        }
        // The rest of the arguments belong to a command.
        if argument == b"--" {
            break;
        }
        if has_short_token && let Some(value) = argument.strip_prefix(SHORT_TOKEN.1) {
            let value = value.strip_prefix(b"=").unwrap_or(value);
            value_follows = argument == SHORT_TOKEN.1;
            if !value_follows {
                found.push((start + argument.len() - value.len(), value.len()));
            }
            continue;
        }
        value_follows = SECRET_FLAGS.iter().any(|flag| argument == flag.as_bytes());
        let value = SECRET_FLAGS.iter().find_map(|flag| {
            let value = argument.strip_prefix(flag.as_bytes())?;
            value.strip_prefix(b"=")
        });
        if let Some(value) = value {
            found.push((start + argument.len() - value.len(), value.len()));
        }
    }
    found
}

/// Splits strings that end with NUL. Returns each string with its start.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    bytes.split(|byte| *byte == 0).map(move |entry| {
        let at = start;
        start += entry.len() + 1;
        (at, entry)
    })
}

fn to_bytes(arguments: &[OsString]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for argument in arguments {
        bytes.extend_from_slice(argument.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_flags_are_found() {
        let found = |line: &str| {
            let bytes: Vec<u8> = line.bytes().map(|it| if it == b' ' { 0 } else { it }).collect();
            let text = |(start, length): &(usize, usize)| line[*start..start + length].to_owned();
            secrets_in(&bytes).iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(found("ab daemon --auth-token t0 --port 1"), ["t0"]);
        assert_eq!(found("ab daemon --auth-token=t0 --ssh-users a:b,c:d"), ["t0", "a:b,c:d"]);
        assert_eq!(found("ab daemon --auth-token-file f --ssh-users-file g"), [""; 0]);
        assert_eq!(found("ab server --token t0 --token-file f"), ["t0"]);
        assert_eq!(found("ab server -t t0 -tt1 -t=t2 --root d"), ["t0", "t1", "t2"]);
        assert_eq!(found("ab exec -t t0"), [""; 0]);
        assert_eq!(found("ab exec --header X:y -- sh --auth-token t"), ["X:y"]);
        // The name of the program is not a flag.
        assert_eq!(found("--auth-token daemon"), [""; 0]);
    }

    #[test]
    fn the_variable_is_found_by_its_whole_name() {
        let text = b"A=1\0AGENT_BACKEND_AUTH_TOKEN=s\0AGENT_BACKEND_AUTH_TOKEN_2=k\0";
        assert_eq!(token_entries(text), [(4, 26)]);
        assert_eq!(token_entries(b"AGENT_BACKEND_AUTH_TOKEN\0"), []);
    }

    #[test]
    fn the_kernel_says_where_arguments_are() {
        let regions = Regions::find().unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        let arguments = regions.arguments.read(&memory).unwrap();
        let first = env::args_os().next().unwrap();
        assert!(arguments.starts_with(first.as_bytes()));
        assert!(Regions::parse("1 (a) b) R 2 3").is_none());
    }
}

//! Reads passphrases and passwords from a file, or from a terminal without echo.

use std::io::{self, IsTerminal};
use std::path::Path;

use agent_backend::remote::SecretText;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcsetattr};

use crate::commands::input;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::secrets;
use crate::terminal::talk;

/// Maximum number of bytes of a typed passphrase.
const LIMIT: usize = 1024;

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACES: [u8; 2] = [8, 127];
const START_OVER: u8 = 21;

/// Reads the first line of a file. For `-`, reads the first line of standard input.
pub(crate) fn in_file(path: &Path) -> Result<SecretText, Failure> {
    secrets::shield();
    let text = String::from_utf8_lossy(&input::secret_file(path)?).into_owned();
    Ok(text.lines().next().unwrap_or_default().into())
}

/// Asks a person for the passphrase of a private key.
pub(crate) fn asked(key: &Path) -> Result<SecretText, Failure> {
    let key = key.display().to_string();
    if !has_person() {
        return Err(Failure::usage(format!("the key {key} is encrypted")).with_hint(
            "give its passphrase with --identity-passphrase-file, or give the key to an SSH agent \
             and leave --identity out",
        ));
    }
    typed(&format!("passphrase of {}", ab_core::error::escape_unprintable(&key)))
}

/// Asks a person for a password.
pub(crate) fn asked_password(whose: &str) -> Result<SecretText, Failure> {
    if !has_person() {
        return Err(Failure::usage("--ask-password needs a terminal")
            .with_hint("give the password with --password-file FILE, or - for standard input"));
    }
    typed(&format!("password of {}", ab_core::error::escape_unprintable(whose)))
}

fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn typed(what: &str) -> Result<SecretText, Failure> {
    secrets::shield();
    let fails = |error| Failure::input(format!("read the {what}"), error);
    let quiet = Quiet::enter().map_err(fails)?;
    talk(&format!("{what}: "));
    let typed = line(|| {
        let mut byte = [0];
        // Read byte by byte, because input after the line may be meant for another program.
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut byte))
            .map(|length| (length > 0).then_some(byte[0]))?)
    });
    drop(quiet);
    talk("\n");
    match typed.map_err(fails)? {
        Some(text) => Ok(String::from_utf8_lossy(&text).into_owned().into()),
        None => Err(Failure::Told(Exit::Interrupted)),
    }
}

/// Turns off echo, line mode and signal keys. Dropping this value turns them on again. The
/// interrupt key is read like any other key, so that the terminal is restored before the process
/// exits.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn enter() -> io::Result<Quiet> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Reads keys up to the end of a line. `None` if the person cancels.
fn line(mut key: impl FnMut() -> io::Result<Option<u8>>) -> io::Result<Option<Vec<u8>>> {
    let mut typed = Vec::new();
    loop {
        match key()? {
            None | Some(INTERRUPT) => return Ok(None),
            Some(b'\r' | b'\n') => return Ok(Some(typed)),
            Some(END) if typed.is_empty() => return Ok(None),
            Some(START_OVER) => typed.clear(),
            Some(key) if BACKSPACES.contains(&key) => {
                // Remove a whole character, which may consist of several bytes.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            Some(key) if typed.len() < LIMIT => typed.push(key),
            Some(_) => return Err(io::Error::other("it is too long")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_make_a_line() {
        let typed = |keys: &str| {
            let mut keys = keys.bytes();
            let line = line(|| Ok(keys.next())).unwrap();
            line.map(|line| (String::from_utf8(line).unwrap(), keys.count()))
        };
        let is = |text: &str, rest| Some((text.to_owned(), rest));
        assert_eq!(typed("open sesame\nmore"), is("open sesame", 4));
        assert_eq!(typed("\r"), is("", 0));
        assert_eq!(typed("axü\u{7f}\u{8}b\n"), is("ab", 0));
        assert_eq!(typed("wrong\u{15}right\n"), is("right", 0));
        assert_eq!(typed("half\u{3}\n"), None);
        assert_eq!(typed("\u{4}"), None);
        assert_eq!(typed("half"), None);
        assert!(line(|| Ok(Some(b'x'))).is_err());
    }
}

//! Converts between names of signals in packets and their numbers.

use russh::Sig;

/// Further signals that programs use, with their numbers on Linux. Signals that are not listed are
/// ignored.
const OTHERS: &[(&str, i32)] = &[
    ("TRAP", 5),
    ("BUS", 7),
    ("USR2", 12),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("WINCH", 28),
    ("SYS", 31),
];

pub(crate) fn number(signal: &Sig) -> Option<i32> {
    Some(match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(name) => {
            let name = name.strip_prefix("SIG").unwrap_or(name);
            OTHERS.iter().find(|other| other.0 == name)?.1
        }
    })
}

pub(crate) fn name(number: i32) -> Sig {
    match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        number => match OTHERS.iter().find(|other| other.1 == number) {
            Some((name, _)) => Sig::Custom((*name).to_owned()),
            // The form that SSH defines for private names.
            None => Sig::Custom(format!("{number}@agent-backend")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for signal in 1..=31 {
            if let Some(back) = number(&name(signal)) {
                assert_eq!(back, signal);
            }
        }
        assert_eq!(number(&Sig::Custom("SIGUSR2".to_owned())), Some(12));
        assert_eq!(number(&Sig::Custom("EVIL".to_owned())), None);
    }
}

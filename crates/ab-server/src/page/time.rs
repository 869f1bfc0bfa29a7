//! Times for people. They are relative to the time of the response. `assets/page.js` updates the
//! times of the class `ago`.

use ab_api::Time;
use maud::{Markup, html};

/// How long ago something happened.
pub(super) fn ago(time: Time, now: Time) -> Markup {
    let told = match since(time, now) {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    };
    html! { time.ago datetime=(time) title=(time) { (told) } }
}

/// How long something took.
pub(super) fn took(from: Time, to: Time) -> String {
    match since(from, to) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// The time since the start of a session, such as `0:07`, `12:00` or `1:00:00`.
pub(super) fn clock(start: Time, time: Time) -> String {
    let seconds = since(start, time);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds % 3_600 / 60, seconds % 60);
    if hours == 0 {
        format!("{minutes}:{seconds:02}")
    } else {
        format!("{hours}:{minutes:02}:{seconds:02}")
    }
}

/// Whole seconds between two times. Zero if the clock was set back.
fn since(from: Time, to: Time) -> u64 {
    u64::try_from(to.as_millis() - from.as_millis()).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let start = Time::from_millis(1_000_000);
        let after = |seconds: i64| Time::from_millis(1_000_000 + seconds * 1000);
        for (seconds, told, length, shown) in [
            (-5, "0 s ago", "0 s", "0:00"),
            (7, "7 s ago", "7 s", "0:07"),
            (754, "12 min ago", "12 min 34 s", "12:34"),
            (3_723, "1 h ago", "1 h 2 min", "1:02:03"),
            (200_000, "2 d ago", "55 h 33 min", "55:33:20"),
        ] {
            assert!(ago(start, after(seconds)).into_string().contains(&format!(">{told}<")));
            assert_eq!(took(start, after(seconds)), length);
            assert_eq!(clock(start, after(seconds)), shown);
        }
    }
}

//! Durations: `500ms`, `2s`, `1m30s`, `1h`; a bare number is seconds.

use std::time::Duration;

/// Parses a duration; `None` if the text is not one.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_poll_002_durations_are_read_in_every_spelling() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("3", 3000),
            ("0.5", 500),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "2x", "-1", "1s2", "2 s", "nan", "1e400"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

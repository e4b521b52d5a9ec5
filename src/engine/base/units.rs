//! Parses and formats amounts: bytes, ratios, durations, counts.

mod escape;

pub use escape::{
    escape_command_lines, escape_name, escape_text, is_active, quote_shell_word, starts_with_command, without_middle,
};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// Whether `text` consists of digits.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `512MiB`, `20GB`, `80G`, `1.5GiB` or plain bytes.
///
/// `K`, `M`, `G`, `T` alone are binary, as in PyTorch's own options, and so are `KiB` and so on; `KB`, `MB`, `GB`, `TB`
/// are powers of ten. Letter case does not matter.
///
/// # Errors
/// One sentence.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_with_unit(text.trim()).ok_or_else(|| {
        format!("'{text}' is not a size: write bytes (1048576) or a number with a unit (512MiB, 20GB, 80G)")
    })
}

fn parse_with_unit(trimmed: &str) -> Option<u64> {
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number = number.replace('_', "");
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => TIB,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    if let Ok(integer) = number.parse::<u64>() {
        return integer.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    if scale == 1 || !(0.0..9.0e18).contains(&value) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked above")]
    Some(value.round() as u64)
}

/// Parses an amount of GPU memory. A number below 1 MiB needs a unit: without one it is not meant.
///
/// # Errors
/// One sentence.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let is_bare = text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    match parse_size(text)? {
        1..MIB if is_bare => Err(format!("'{text}' is less than 1 MiB: give a unit, such as {text}GiB, or {text}B")),
        bytes => Ok(bytes),
    }
}

/// Parses `0.3` or `30%`, from 0 to 1.
///
/// # Errors
/// One sentence.
pub fn parse_ratio(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let (number, scale) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (trimmed, 1.0),
    };
    let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let ratio = number.parse::<f64>().ok().filter(|_| is_plain).map(|value| value / scale);
    ratio.filter(|ratio| *ratio <= 1.0).ok_or_else(|| format!("'{text}' is not a ratio from 0 to 1: write 0.3 or 30%"))
}

/// Formats bytes with three significant digits: `512 B`, `1.50 KiB`, `24 KiB`, `977 MiB`, `79.3 GiB`. A multiple of the
/// unit has no decimals.
pub fn size(bytes: u64) -> String {
    let units = [(KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB"), (TIB, "TiB")];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    // A number that rounds to 1000 has four digits: the next unit.
    let (scale, unit) =
        units.into_iter().find(|(scale, _)| (bytes as f64) < 999.5 * *scale as f64).unwrap_or((TIB, "TiB"));
    let value = bytes as f64 / scale as f64;
    match value {
        _ if bytes.is_multiple_of(scale) => format!("{} {unit}", count(bytes / scale)),
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Formats a change in bytes with its sign: `+1.20 GiB`, `-512 MiB`, `0 B`.
pub fn signed_size(bytes: i64) -> String {
    format!("{}{}", sign(bytes), size(bytes.unsigned_abs()))
}

/// Formats bytes exactly: `418,535,424 B`.
pub fn exact_size(bytes: u64) -> String {
    format!("{} B", count(bytes))
}

/// Formats a change of a count with its sign: `+1,234`, `-1`, `0`.
pub fn signed_count(n: i64) -> String {
    format!("{}{}", sign(n), count(n.unsigned_abs()))
}

fn sign(n: i64) -> &'static str {
    match n.signum() {
        1 => "+",
        0 => "",
        _ => "-",
    }
}

/// `value`, or the number next to it that fits.
pub fn saturated(value: i128) -> i64 {
    i64::try_from(value.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or_default()
}

/// `after - before`; it saturates.
pub fn signed_difference(before: u64, after: u64) -> i64 {
    let difference = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -difference } else { difference }
}

/// Formats a ratio from 0 to 1 as a percentage: `0%`, `0.4%`, `37%`.
///
/// Only 0 prints as `0%`, and only 1 as `100%`.
pub fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if value <= 0.0 {
        "0%".to_owned()
    } else if value < 0.1 {
        "<0.1%".to_owned()
    } else if value < 9.95 {
        format!("{value:.1}%")
    } else if (99.5..100.0).contains(&value) {
        format!("{:.1}%", value.min(99.9))
    } else {
        format!("{value:.0}%")
    }
}

/// Formats a count with separated thousands: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a count with its noun: `1 block`, `3,014 blocks`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = match n {
        1 => "",
        _ if noun.ends_with('y') => return format!("{} {}ies", count(n), &noun[..noun.len() - 1]),
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", count(n))
}

/// Formats microseconds: `850 us`, `12.3 ms`, `4.57 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min {} s", us / 60_000_000, us / 1_000_000 % 60),
        _ => format!("{} h {} min", us / 3_600_000_000, us / 60_000_000 % 60),
    }
}

/// Formats the raw handle of a stream: small numbers in decimal, pointers in hex.
pub fn stream(handle: u64) -> String {
    match handle {
        0 => "0 (default)".to_owned(),
        1..=0xffff => handle.to_string(),
        _ => format!("{handle:#x}"),
    }
}

/// `part / total`; 0 if `total` is 0.
pub fn ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// `15 times`, `2.4 times`: `part` as a multiple of `unit`.
pub fn times(part: u64, unit: u64) -> String {
    let value = part as f64 / unit.max(1) as f64;
    if value < 9.95 { format!("{value:.1} times") } else { format!("{value:.0} times") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_rounded() {
        assert_eq!(times(12, 5), "2.4 times");
        assert_eq!(times(151, 10), "15 times");
        assert_eq!(times(7, 0), "7.0 times");
    }

    #[test]
    fn sizes_parse_as_documented() {
        assert_eq!(parse_size("1048576"), Ok(MIB));
        assert_eq!(parse_size("512MiB"), Ok(512 * MIB));
        assert_eq!(parse_size("20GB"), Ok(20_000_000_000));
        assert_eq!(parse_size("80G"), Ok(80 * GIB));
        assert_eq!(parse_size("1.5 gib"), Ok(3 * GIB / 2));
        for bad in [
            "",
            "GiB",
            "-1",
            "12 parsecs",
            "1e9",
            "99999999999999999999",
            "1.2.3",
            "18446744073709551615G",
            "1.5",
            "72.5 bytes",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ratios_parse_as_documented() {
        for (text, ratio) in [("0.3", 0.3), ("30%", 0.3), (" 12.5 % ", 0.125), ("0", 0.0), ("1", 1.0)] {
            assert_eq!(parse_ratio(text), Ok(ratio), "{text}");
        }
        for bad in ["", "%", "-0.1", "101%", "1.01", "30", "nan", "inf", "1e-1", "+0.5", "0,3", "a third"] {
            assert!(parse_ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1000), "0.98 KiB");
        assert_eq!(size(20 * MIB), "20 MiB");
        assert_eq!(size(418_535_424), "399 MiB");
        assert_eq!(size(85_900_000), "81.9 MiB");
        assert_eq!(size(5 * GIB + 1), "5.00 GiB");
        assert_eq!(size(1_022 * MIB + 1), "1.00 GiB");
        assert_eq!(size(1_000 * MIB), "0.98 GiB");
        assert_eq!(size(10 * GIB - 1), "10.0 GiB");
        assert_eq!(size(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(signed_size(20 << 20), "+20 MiB");
        assert_eq!(signed_size(-512), "-512 B");
        assert_eq!(signed_size(0), "0 B");
        assert_eq!(signed_count(-1_234), "-1,234");
    }

    #[test]
    fn percentages_do_not_round_to_0_or_100() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(1e-9), "<0.1%");
        assert_eq!(percent(0.999_99), "99.9%");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(percent(0.372), "37%");
    }

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        assert_eq!(escape_text("ü/train.py"), "ü/train.py");
        assert_eq!(escape_text("a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(escape_text("\u{61c}a\u{202e}"), "\\u{61c}a\\u{202e}");
    }

    #[test]
    fn counts_and_durations() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "trace entry"), "1 trace entry");
        assert_eq!(counted(2, "trace entry"), "2 trace entries");
        assert_eq!(duration(4_567_000), "4.57 s");
        assert_eq!(duration(200_000_000), "3 min 20 s");
    }
}

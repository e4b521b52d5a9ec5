//! JSON, indented or on one line. Characters that a terminal or a CI runner would act on are escaped.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::base::units::{is_active, starts_with_command};

/// Indented JSON with a final newline.
///
/// # Errors
/// Never for the reports of this crate: they have string keys only.
pub fn json(report: &impl Serialize) -> serde_json::Result<String> {
    serialize_with(report, Some(PrettyFormatter::new()))
}

/// JSON on one line, with a final newline.
///
/// # Errors
/// Never for the reports of this crate: they have string keys only.
pub fn json_line(report: &impl Serialize) -> serde_json::Result<String> {
    serialize_with(report, None)
}

fn serialize_with(report: &impl Serialize, pretty: Option<PrettyFormatter<'static>>) -> serde_json::Result<String> {
    let mut text = Vec::new();
    report.serialize(&mut Serializer::with_formatter(&mut text, ReportFormatter(pretty)))?;
    text.push(b'\n');
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// Indents, or writes one line without its formatter, and escapes active characters. A JSON parser reads the same values.
///
/// One type for both layouts: the compiler generates the code of every report for each type of formatter.
struct ReportFormatter(Option<PrettyFormatter<'static>>);

/// Forwards methods to the formatter of the layout.
macro_rules! of_the_layout {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, out: &mut W $(, $argument: $type)?) -> io::Result<()> {
            match &mut self.0 {
                Some(pretty) => pretty.$name(out $(, $argument)?),
                None => CompactFormatter.$name(out $(, $argument)?),
            }
        })*
    };
}

impl Formatter for ReportFormatter {
    of_the_layout! {
        begin_array();
        end_array();
        begin_array_value(is_first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(is_first: bool);
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'"' | b'$'..=b'~')) {
            return out.write_all(fragment.as_bytes());
        }
        let mut done = 0;
        for (at, c) in fragment.char_indices() {
            if is_active(c) || (c == '#' && starts_with_command(&fragment[at..])) {
                out.write_all(&fragment.as_bytes()[done..at])?;
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
                done = at + c.len_utf8();
            }
        }
        out.write_all(&fragment.as_bytes()[done..])
    }
}

#[cfg(test)]
mod tests {
    use super::super::json;

    #[test]
    fn active_characters_are_escaped_and_read_back_unchanged() {
        let input = "a\u{9b}\u{202e}\u{200b}\u{e0041}##[error]b \u{1b}\"\\ Zoë 😀 # ##";
        let text = json(&serde_json::json!({ input: [input, []] })).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()[input][0], input);
        assert!(text.contains(r"a\u009b\u202e\u200b\udb40\udc41\u0023#[error]b \u001b"), "{text}");
        let plain = serde_json::json!({"a": [1, {"b": null}, {}], "c": "é"});
        assert_eq!(json(&plain).unwrap().trim_end(), serde_json::to_string_pretty(&plain).unwrap());
    }
}

//! Escaping for HTML and SVG.

use crate::base::units::escape_text;

/// Escapes `text` for use in an element or a quoted attribute. All text of a page goes through this function.
pub fn escape_html(text: &str) -> String {
    let text = escape_text(text);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

//! Text in HTML and SVG.

use crate::base::units::escape_text;

/// `text` that is text and nothing else, in an element or in quotes. All text passes here.
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

//! A document as HTML: semantic elements with classes, without scripts. The style belongs to the page around it.

use std::fmt::Write as _;

use itertools::Itertools as _;

use super::block::{BarPart, Block, Document, Field, Item, Stack};
use super::table::{Cell, Table};
use super::text::{Span, Text, Tone};
use super::text_chart::{UNICODE, draw};
use crate::base::units::{escape_text, ratio};

/// Width of a chart.
const CHART_COLUMNS: usize = 120;

/// Renders the first screen of `document` as HTML; [`Document::in_full`] has the rest.
pub fn html(document: &Document) -> String {
    document.blocks.iter().map(block).collect()
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(level, text) => format!("<h{level}>{}</h{level}>\n", inline(text)),
        Block::Headline(answer, context) => {
            format!("<h1>{} <span class=\"context\">{}</span></h1>\n", inline(answer), inline(context))
        }
        Block::Paragraph(text) => format!("<p>{}</p>\n", inline(text)),
        Block::Fields(fields) => format!("<dl>\n{}</dl>\n", fields.iter().map(field).format("")),
        Block::List(items) => format!("<ul>\n{}</ul>\n", items.iter().map(item).format("")),
        Block::Table(table) => self::table(table),
        Block::Chart(chart) => format!("<pre>{}</pre>\n", escape_lines(&draw(chart, CHART_COLUMNS, UNICODE))),
        Block::Bar(parts) => bar(parts),
        Block::Source(source) => format!("<pre class=\"source\">{}</pre>\n", escape_lines(&source.numbered())),
        Block::Callers(callers) => {
            format!("<p class=\"callers\">called from {}</p>\n", callers.iter().map(inline).format(" ← "))
        }
        Block::Stack(stack) => self::stack(stack),
        Block::Warning(code, text) => {
            format!("<p class=\"warning\"><strong>{}</strong>: {}</p>\n", escape_html(code), inline(text))
        }
    }
}

/// The parts as widths of one row; the legend has the figures.
fn bar(parts: &[BarPart]) -> String {
    let total: u64 = parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
    let mut at = 0.0;
    let mut cells = String::new();
    for part in parts {
        let width = 1000.0 * ratio(part.bytes, total);
        let _ = write!(cells, "<rect class=\"{}\" x=\"{at:.1}\" width=\"{width:.1}\" height=\"10\"/>", part.kind);
        at += width;
    }
    let legend =
        parts.iter().map(|part| format!("<li class=\"{}\">{}</li>", part.kind, inline(&part.label))).format("");
    format!(
        "<div class=\"memory\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{cells}</svg>\
         <ul>{legend}</ul></div>\n"
    )
}

fn field(field: &Field) -> String {
    let texts = field.texts.iter().map(|text| format!("<dd>{}</dd>", inline(text))).join("");
    format!("<div><dt>{}</dt>{texts}</div>\n", escape_html(&field.name))
}

fn item(item: &Item) -> String {
    let below = item.details.iter().map(|text| format!("<li>{}</li>", inline(text))).join("");
    let below = if below.is_empty() { below } else { format!("<ul>{below}</ul>") };
    format!("<li>{}{below}</li>\n", inline(&item.text))
}

fn table(table: &Table) -> String {
    let header = table.columns.iter().enumerate().map(|(index, column)| {
        // A header without text is read aloud as one.
        if column.heading.is_empty() {
            return "<td></td>".to_owned();
        }
        format!("<th scope=\"col\"{}>{}</th>", class(table, index), escape_html(&column.heading))
    });
    let header: String = header.collect();
    let rows = table.rows.iter().map(|cells| {
        let cells =
            (0..).zip(cells).map(|(column, cell)| format!("<td{}>{}</td>", class(table, column), self::cell(cell)));
        format!("<tr>{}</tr>\n", cells.format(""))
    });
    let header = if table.columns.is_empty() { String::new() } else { format!("<thead><tr>{header}</tr></thead>\n") };
    format!(
        "<div class=\"table\"><table>\n{header}<tbody>\n{}</tbody>\n</table>\n{}</div>\n",
        rows.format(""),
        table.note.as_ref().map_or_else(String::new, |text| format!("<p class=\"note\">{}</p>\n", inline(text)))
    )
}

fn class(table: &Table, column: usize) -> &'static str {
    if table.is_text(column) { "" } else { " class=\"number\"" }
}

fn cell(cell: &Cell) -> String {
    let mark = cell.mark.map(|mark| format!("<span class=\"mark {mark}\">{}</span> ", mark.glyphs()[0]));
    let text = inline(&cell.text);
    let text = match cell.depth {
        Some(depth) => format!("<span class=\"part{}\">{text}</span>", depth.min(4)),
        None => text,
    };
    mark.into_iter().chain([text]).chain(cell.details.iter().map(|text| format!("<br>{}", inline(text)))).collect()
}

fn stack(stack: &Stack) -> String {
    let shown = stack.frames.len();
    let summary = escape_html(&format!("{} ({shown} shown, {} folded)", stack.name, stack.folded_frames));
    let frames = escape_lines(&stack.frames);
    format!("<details class=\"stack\"><summary>{summary}</summary>\n<pre>{frames}</pre>\n</details>\n")
}

/// `lines`, escaped and joined.
fn escape_lines(lines: &[String]) -> String {
    lines.iter().map(|line| escape_html(line)).join("\n")
}

fn inline(text: &Text) -> String {
    text.spans.iter().map(span).collect()
}

fn span(span: &Span) -> String {
    let text = escape_html(&span.text);
    let text = if span.is_code { format!("<code>{text}</code>") } else { text };
    match span.tone {
        Tone::Plain => text,
        Tone::Strong => format!("<strong>{text}</strong>"),
        Tone::Alarm => format!("<strong class=\"alarm\">{text}</strong>"),
        Tone::Faint => format!("<span class=\"faint\">{text}</span>"),
    }
}

/// Escapes `text` for use in an element or a quoted attribute. All text of a page goes through this function.
pub fn escape_html(text: &str) -> String {
    let entities = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    entities.iter().fold(escape_text(text), |text, (character, entity)| text.replace(*character, entity))
}

#[cfg(test)]
mod tests {
    use super::super::text::{alarm, code};
    use super::*;

    #[test]
    fn names_from_files_stay_text() {
        let mut document = Document::default();
        document.heading(code("</h2><script>alert(1)</script>"));
        document.field("a\"b", alarm("'x' & \u{202e}y"));
        document.list(["<li>"]);
        document.table(Table::from_rows(["<td onclick=\"x\">"]).text("t", |text| *text).note(Some("<b>")));
        let frames = vec!["</details>".to_owned(), "</pre><img src=x onerror=alert(1)>".to_owned()];
        document.stack(Stack { name: "stack", frames, folded_frames: 1 });
        document.warning("<w>", "</p>");
        let page = html(&document);
        for forbidden in ["<script", "<img", "</h2><", "<b>", "<w>", "onclick=\"", "\u{202e}"] {
            assert!(!page.contains(forbidden), "{forbidden} in {page}");
        }
        assert!(page.contains("<h2><code>&lt;/h2&gt;&lt;script&gt;alert(1)"), "{page}");
        assert!(page.contains("<dt>a&quot;b</dt><dd><strong class=\"alarm\">&#39;x&#39; &amp; \\u{202e}y"));
    }
}

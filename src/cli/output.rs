//! Where the result goes, and what that place can show.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::args::Format;
use super::whole_file::WholeFile;
use crate::output::document::{Document, Style, comment, terminal};
use crate::output::formats;

/// Columns of a page that is not shown on a terminal.
const DEFAULT_WIDTH: usize = 100;
/// Below this a page is not laid out any narrower.
const MIN_WIDTH: usize = 40;

/// Columns of a page on which nothing is to be cut or wrapped.
const WIDE: usize = u16::MAX as usize;

/// Whether pages are to be as wide as what they say.
static IS_WIDE: AtomicBool = AtomicBool::new(false);

/// Pages are as wide as what they say from now on: for `less -S` and the like.
pub(super) fn widen() {
    IS_WIDE.store(true, Ordering::Relaxed);
}

fn is_wide() -> bool {
    IS_WIDE.load(Ordering::Relaxed)
}

/// The place of the result, opened before the work begins: a bad path fails at once. What an earlier run
/// wrote there stands until there is a whole result.
pub(super) struct Output {
    file: Option<WholeFile>,
    name: String,
}

impl Output {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { file: None, name: "standard output".to_owned() });
        };
        let name = path.display().to_string();
        let file = WholeFile::open(path).with_context(|| format!("{name} cannot be written"))?;
        Ok(Self { file: Some(file), name })
    }

    /// What can be shown there.
    fn style(&self) -> Style {
        let terminal = self.file.is_none() && io::stdout().is_terminal();
        let width = match terminal_size::terminal_size_of(io::stdout()) {
            Some((terminal_size::Width(width), _)) if terminal => usize::from(width),
            _ => DEFAULT_WIDTH,
        };
        let width = if is_wide() { WIDE } else { width };
        let choice = anstream::AutoStream::choice(&io::stdout());
        Style {
            width: width.max(MIN_WIDTH),
            unicode: shows_unicode(terminal),
            colour: self.file.is_none() && choice != anstream::ColorChoice::Never,
        }
    }

    /// Whether a page in this form has colours.
    pub(super) fn has_colour(&self, format: Format) -> bool {
        format == Format::Human && self.style().colour
    }

    /// Writes `answer` in one of the forms that every command has.
    pub(super) fn write_answer<T: Serialize>(
        self,
        format: Format,
        answer: &T,
        document: impl FnOnce(&T) -> Document,
    ) -> anyhow::Result<()> {
        let page = |answer: &T| {
            let mut page = document(answer);
            if !is_wide() {
                page.cut_places();
            }
            page
        };
        let text = match format {
            Format::Human => terminal(&page(answer), self.style()),
            Format::Json => formats::json(answer)?,
            Format::Jsonl => formats::json_line(answer)?,
            Format::Markdown => comment(&page(answer)),
            other => bail!("{other:?} is not a format of this command"),
        };
        self.write(&text)
    }

    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        self.write_by(|out| out.write_all(text.as_bytes()))
    }

    /// Writes what `writer` does.
    pub(super) fn write_by(
        self,
        writer: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = if let Some(file) = self.file {
            file.write_by(writer)
        } else {
            let mut out = io::stdout().lock();
            writer(&mut out).and_then(|()| out.flush())
        };
        match written {
            // Whoever reads it has seen enough: no failure, and no reason for a gate to pass.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.with_context(|| format!("{} cannot be written", self.name)),
        }
    }
}

/// What standard error can show.
pub(super) fn style_of_errors() -> Style {
    let terminal = io::stderr().is_terminal();
    let width = match terminal_size::terminal_size_of(io::stderr()) {
        Some((terminal_size::Width(width), _)) if terminal => usize::from(width),
        _ => DEFAULT_WIDTH,
    };
    let colour = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    Style { width: width.max(MIN_WIDTH), unicode: shows_unicode(terminal), colour }
}

/// A locale that names another character set, or a terminal that has none to speak of, gets ASCII. An
/// unset locale says nothing: terminals reached from bare containers show UTF-8.
fn shows_unicode(terminal: bool) -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if terminal && matches!(set("TERM").as_deref(), Some("dumb" | "linux")) {
        return false;
    }
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_uppercase();
        locale.contains("UTF-8") || locale.contains("UTF8")
    })
}

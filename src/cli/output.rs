//! Writes results to standard output or a file, and detects the width, colour and Unicode of terminals.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::args::{Format, OutputArgs, ViewArgs};
use super::atomic_file::AtomicFile;
use super::exit::Exit;
use super::guess::hint_for_file;
use crate::output::document::{Document, Style, markdown_comment, terminal};
use crate::output::formats;

/// Columns of a page that is not printed on a terminal.
const DEFAULT_WIDTH: usize = 100;
const MIN_WIDTH: usize = 40;

/// Columns of a page with --wide.
const UNLIMITED_WIDTH: usize = u16::MAX as usize;

/// The destination of a result. It is opened before the work starts, so a bad path fails at once; an existing file is
/// replaced only by a complete result.
pub(super) struct Output {
    file: Option<AtomicFile>,
    name: String,
    view: ViewArgs,
    has_exact_sizes: bool,
    /// Further files for an answer.
    also: Vec<(Format, Self)>,
}

impl Output {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
        let file = path.map(AtomicFile::open).transpose().with_context(|| format!("{name} cannot be written"))?;
        Ok(Self { file, name, view: ViewArgs::default(), has_exact_sizes: false, also: Vec::new() })
    }

    pub(super) fn with_view(self, view: ViewArgs) -> Self {
        Self { view, ..self }
    }

    /// Pages show exact numbers of bytes.
    pub(super) fn with_exact_sizes(self, has_exact_sizes: bool) -> Self {
        Self { has_exact_sizes, ..self }
    }

    /// Whether a person at a terminal reads it.
    pub(super) fn is_terminal(&self) -> bool {
        self.file.is_none() && io::stdout().is_terminal()
    }

    fn style(&self) -> Style {
        let stream = io::stdout();
        let colour = self.file.is_none() && anstream::AutoStream::choice(&stream) != anstream::ColorChoice::Never;
        let style = stream_style(self.is_terminal(), terminal_size::terminal_size_of(&stream), colour);
        if self.view.wide { Style { width: UNLIMITED_WIDTH, ..style } } else { style }
    }

    /// Writes `answer` in one of the formats that every command has: success, if nothing else decides.
    pub(super) fn write_answer<T: Serialize>(
        mut self,
        format: Format,
        answer: &T,
        document: impl Fn(&T) -> Document,
    ) -> anyhow::Result<Exit> {
        self.write_also(answer, &document)?;
        let text = match format {
            Format::Human => terminal(&self.page(document(answer), self.view.wide), self.style()),
            Format::Json => formats::json(answer)?,
            Format::Jsonl => formats::json_line(answer)?,
            Format::Markdown => markdown_comment(&self.page(document(answer), false)),
        };
        self.write(&text)
    }

    fn page(&self, document: Document, is_wide: bool) -> Document {
        let page = shown_page(document, self.view.full, is_wide);
        if self.has_exact_sizes { page.with_exact_sizes() } else { page }
    }

    /// Writes `answer` to the further files.
    pub(super) fn write_also<T: Serialize>(
        &mut self,
        answer: &T,
        document: &dyn Fn(&T) -> Document,
    ) -> anyhow::Result<()> {
        std::mem::take(&mut self.also).into_iter().try_for_each(|(format, file)| {
            let file = file.with_view(self.view).with_exact_sizes(self.has_exact_sizes);
            file.write_answer(format, answer, document).map(drop)
        })
    }

    pub(super) fn write(self, text: &str) -> anyhow::Result<Exit> {
        self.write_with(|out| out.write_all(text.as_bytes()))
    }

    /// Writes while `work` reads its input, which may fail. Without an exit code from `work` nothing was read, and nothing
    /// is written.
    pub(super) fn write_streamed(
        self,
        work: impl FnOnce(&mut (dyn io::Write + Send)) -> anyhow::Result<Option<Exit>>,
    ) -> anyhow::Result<Exit> {
        stream_to(self.file, work).or_else(|error| match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Success),
            Some(_) => Err(error.context(format!("{} cannot be written", self.name))),
            None => Err(error),
        })
    }

    pub(super) fn write_with(self, writer: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> anyhow::Result<Exit> {
        self.write_streamed(|out| Ok(writer(out).map(|()| Some(Exit::Success))?))
    }
}

impl OutputArgs {
    /// Opens the destination.
    pub(super) fn open(&self) -> anyhow::Result<Output> {
        if let Some((path, hint)) = self.output.as_deref().and_then(|path| Some((path, hint_for_file(path)?))) {
            bail!("{}: {hint}", path.display());
        }
        let outputs = self.also.iter().map(|(format, path)| Ok((*format, Output::open(Some(path))?)));
        let also = outputs.collect::<anyhow::Result<_>>()?;
        Ok(Output { also, ..Output::open(self.output.as_deref())?.with_view(self.view) })
    }
}

/// Runs `work` on `file`, or else on standard output.
fn stream_to(
    file: Option<AtomicFile>,
    work: impl FnOnce(&mut (dyn io::Write + Send)) -> anyhow::Result<Option<Exit>>,
) -> anyhow::Result<Exit> {
    let destination: Box<dyn io::Write + Send> = match &file {
        Some(file) => Box::new(file.handle()?),
        None => Box::new(io::stdout()),
    };
    let mut out = io::BufWriter::new(destination);
    let exit = work(&mut out)?;
    out.flush()?;
    drop(out);
    if let (Some(file), Some(_)) = (file, exit) {
        file.finish()?;
    }
    Ok(exit.unwrap_or(Exit::Unreadable))
}

/// The first screen of `page`, or all of it, with short paths unless it `is_wide`.
fn shown_page(page: Document, is_full: bool, is_wide: bool) -> Document {
    let mut page = if is_full { page.in_full() } else { page };
    if !is_wide {
        page.shorten_locations();
    }
    page
}

/// Writes the first screen of `page` to standard error.
pub(super) fn print_page(page: Document) {
    let stream = io::stderr();
    let colour = anstream::AutoStream::choice(&stream) != anstream::ColorChoice::Never;
    let style = stream_style(stream.is_terminal(), terminal_size::terminal_size_of(&stream), colour);
    let text = terminal(&shown_page(page, false, false), style);
    // If standard error is closed, there is nowhere to report it.
    let _ = stream.lock().write_all(text.as_bytes());
}

fn stream_style(terminal: bool, size: Option<TerminalSize>, colour: bool) -> Style {
    let columns = size.filter(|_| terminal).map(|(width, _)| usize::from(width.0));
    // For output that is not a terminal.
    let columns = columns.or_else(|| variable("COLUMNS")?.parse().ok().filter(|columns| *columns > 0));
    let width = columns.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH);
    Style { width, unicode: supports_unicode(terminal), colour }
}

type TerminalSize = (terminal_size::Width, terminal_size::Height);

/// False for simple terminals and locales with another character set. An unset locale counts as UTF-8: terminals of
/// bare containers support it.
pub(super) fn supports_unicode(terminal: bool) -> bool {
    if terminal && matches!(variable("TERM").as_deref(), Some("dumb" | "linux")) {
        return false;
    }
    let locale = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG"));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_uppercase();
        locale.contains("UTF-8") || locale.contains("UTF8")
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

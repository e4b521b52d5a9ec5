//! The blocks of a document, and methods to append them.

use super::table::Table;
use super::text::{Span, Text};
use crate::base::warning::words;

/// A page. [`crate::output::report`] makes one from each report.
#[must_use]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// The first screen, from top to bottom: the answer.
    #[doc(hidden)]
    pub blocks: Vec<Block>,
    /// Details below it, for `--full`.
    #[doc(hidden)]
    pub sections: Vec<Block>,
}

/// A block-level element.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// The answer in one line, and its context at the end of the line.
    Headline(Text, Text),
    /// Level 1 is the title, 2 a section, 3 a subsection.
    Heading(u8, Text),
    Paragraph(Text),
    /// Name and value pairs.
    Fields(Vec<Field>),
    /// An unordered list.
    List(Vec<Item>),
    /// See [`Table`].
    Table(Table),
    /// See [`Chart`]. The renderers choose how many columns to draw.
    Chart(Chart),
    /// The parts of one whole, drawn as a bar with a legend, from left to right.
    Bar(Vec<BarPart>),
    /// A line of the program's source, with its neighbours.
    Source(Source),
    /// The callers of a line, innermost first. As many are shown as fit on one line.
    Callers(Vec<Text>),
    /// Stack frames; folded where the format supports it.
    Stack(Stack),
    /// A warning's code and message.
    Warning(String, Text),
}

impl Block {
    fn texts_mut(&mut self) -> Vec<&mut Text> {
        match self {
            Self::Headline(text, context) => vec![text, context],
            Self::Heading(_, text) | Self::Paragraph(text) | Self::Warning(_, text) => vec![text],
            Self::Callers(texts) => texts.iter_mut().collect(),
            Self::Bar(parts) => parts.iter_mut().map(|part| &mut part.label).collect(),
            Self::Fields(fields) => fields.iter_mut().flat_map(|field| &mut field.texts).collect(),
            Self::List(items) => {
                items.iter_mut().flat_map(|item| std::iter::once(&mut item.text).chain(&mut item.details)).collect()
            }
            Self::Table(table) => table.texts_mut(),
            Self::Chart(_) | Self::Source(_) | Self::Stack(_) => Vec::new(),
        }
    }
}

/// A name with one or more values.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Empty to continue the field above.
    pub name: String,
    /// Not empty.
    pub texts: Vec<Text>,
}

/// A list item with indented lines below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub text: Text,
    /// One line each.
    pub details: Vec<Text>,
}

impl<T: Into<Text>> From<T> for Item {
    fn from(text: T) -> Self {
        Self { text: text.into(), details: Vec::new() }
    }
}

/// A part of one whole.
#[derive(Debug, Clone, PartialEq)]
pub struct BarPart {
    pub bytes: u64,
    pub kind: BarKind,
    /// Its legend, with the figure.
    pub label: Text,
}

impl BarPart {
    pub fn new(bytes: u64, kind: BarKind, label: impl Into<Text>) -> Self {
        Self { bytes, kind, label: label.into() }
    }
}

words! {
    /// The use of the memory of a [`BarPart`]
    pub enum BarKind {
        /// Tensors hold it
        Allocated = "allocated",
        /// Tensors held it at the peak
        Peak = "peak",
        /// The allocator has reserved it, and no tensor holds it
        Cached = "cached",
        /// In use outside PyTorch
        Outside = "outside",
        /// Free on the device
        Free = "free",
        /// Not known
        Unknown = "unknown",
    }
}

/// Allocated and reserved memory over one axis, which is divided into buckets of entries, and what happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// Number of entries in all buckets.
    pub entries: u64,
    /// Index of the first entry in the trace.
    pub first: u64,
    /// First entry of each bucket, relative to `first`.
    pub starts: Vec<u64>,
    /// Start of each bucket, in microseconds since the first entry; empty if not recorded.
    pub times_us: Vec<u64>,
    /// The maximum of each bucket.
    pub allocated: Vec<u64>,
    /// The same of reserved memory.
    pub reserved: Vec<u64>,
    /// Bytes in rows of one line, each on its own scale: the maximum of each bucket.
    pub levels: Vec<(&'static str, Vec<u64>)>,
    /// Rows of consecutive ranges with names. If there are too many for the width, the row is left out.
    pub bands: Vec<(&'static str, Vec<Band>)>,
    /// The same with numbers, which are thinned out.
    pub steps: Vec<Band>,
    /// The requests that failed.
    pub failed: Failures,
}

/// Failed requests of a [`Chart`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Failures {
    /// Half-open ranges of entries, drawn as marks.
    pub ranges: Vec<[u64; 2]>,
    /// Labels at entries.
    pub labels: Vec<(u64, String)>,
    /// Text beside the marks.
    pub note: String,
}

/// A named range of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Half-open, relative to the first entry drawn.
    pub range: [u64; 2],
    pub name: String,
}

/// Lines of a source file.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Number of the first line.
    pub first: u64,
    pub lines: Vec<String>,
    /// Number of the line that is marked with `note`.
    pub marked: u64,
    pub note: String,
}

impl Source {
    /// Each line with its number, the marked one with its note.
    pub(super) fn numbered(&self) -> Vec<String> {
        let lines = (self.first..).zip(&self.lines).map(|(number, line)| match number {
            _ if number == self.marked => format!("{number} {line}  ← {}", self.note),
            _ => format!("{number} {line}"),
        });
        lines.collect()
    }
}

/// The frames of a stack, innermost first.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// Label of the stack, such as `traceback`.
    pub name: &'static str,
    /// Each as `file:line in function`.
    pub frames: Vec<String>,
    /// Number of interpreter and library frames left out.
    pub folded_frames: u64,
}

#[doc(hidden)]
impl Document {
    /// The code of a warning that counts those below the first screen.
    pub const MORE: &'static str = "more";

    /// The first screen and everything below it, which needs no count.
    pub fn in_full(mut self) -> Self {
        self.blocks.retain(|block| !matches!(block, Block::Warning(code, _) if code == Self::MORE));
        self.blocks.append(&mut self.sections);
        self
    }

    /// Shows exact numbers of bytes in place of three digits.
    pub fn with_exact_sizes(mut self) -> Self {
        for (span, _) in self.spans_mut() {
            if let Some(exact) = span.exact.take() {
                span.text = exact;
            }
        }
        self
    }

    /// Every span that may be a source location or an amount, and whether it is in a headline.
    pub(super) fn spans_mut(&mut self) -> impl Iterator<Item = (&mut Span, bool)> {
        self.blocks.iter_mut().chain(&mut self.sections).flat_map(|block| {
            let is_headline = matches!(block, Block::Headline(..));
            block.texts_mut().into_iter().flat_map(|text| &mut text.spans).map(move |span| (span, is_headline))
        })
    }

    /// A document that begins with `answer`.
    pub fn with_headline(answer: impl Into<Text>, context: impl Into<Text>) -> Self {
        let mut document = Self::default();
        document.headline(answer, context);
        document
    }

    /// Appends the blocks of `below` to the sections below the first screen.
    pub fn with_sections(mut self, below: Self) -> Self {
        self.sections.extend(below.in_full().blocks);
        self
    }

    pub fn headline(&mut self, answer: impl Into<Text>, context: impl Into<Text>) {
        self.blocks.push(Block::Headline(answer.into(), context.into()));
    }

    /// Appends a bar of the parts that are not empty.
    pub fn bar(&mut self, parts: impl IntoIterator<Item = BarPart>) {
        self.blocks.push(Block::Bar(parts.into_iter().filter(|part| part.bytes > 0).collect()));
    }

    /// Appends the callers of a line unless there are none.
    pub fn callers(&mut self, callers: Vec<Text>) {
        self.blocks.extend((!callers.is_empty()).then_some(Block::Callers(callers)));
    }

    pub fn source(&mut self, source: Source) {
        self.blocks.push(Block::Source(source));
    }

    pub fn heading(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Heading(2, text.into()));
    }

    pub fn subheading(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Heading(3, text.into()));
    }

    pub fn paragraph(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    pub fn field(&mut self, name: impl Into<String>, text: impl Into<Text>) {
        self.fields(name, [text]);
    }

    /// Appends a field; consecutive fields share a block. Does nothing if `texts` is empty.
    pub fn fields<T: Into<Text>>(&mut self, name: impl Into<String>, texts: impl IntoIterator<Item = T>) {
        let texts: Vec<Text> = texts.into_iter().map(Into::into).collect();
        if texts.is_empty() {
            return;
        }
        let field = Field { name: name.into(), texts };
        match self.blocks.last_mut() {
            Some(Block::Fields(fields)) => fields.push(field),
            _ => self.blocks.push(Block::Fields(vec![field])),
        }
    }

    /// Appends a list unless `items` is empty.
    pub fn list<T: Into<Item>>(&mut self, items: impl IntoIterator<Item = T>) {
        let items: Vec<Item> = items.into_iter().map(Into::into).collect();
        self.blocks.extend((!items.is_empty()).then_some(Block::List(items)));
    }

    /// Appends a section with a list unless `items` is empty.
    pub fn list_under<T: Into<Item>>(&mut self, heading: &str, items: impl IntoIterator<Item = T>) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.heading(heading);
            self.list(items);
        }
    }

    /// Appends a table unless it has no rows.
    pub fn table(&mut self, table: impl Into<Table>) {
        let table = table.into();
        self.blocks.extend((!table.rows.is_empty()).then_some(Block::Table(table)));
    }

    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::Chart(chart));
    }

    /// Appends a stack unless it has no frames.
    pub fn stack(&mut self, stack: Stack) {
        let is_known = !stack.frames.is_empty() || stack.folded_frames > 0;
        self.blocks.extend(is_known.then_some(Block::Stack(stack)));
    }

    pub fn warning(&mut self, code: impl Into<String>, text: impl Into<Text>) {
        self.blocks.push(Block::Warning(code.into(), text.into()));
    }
}

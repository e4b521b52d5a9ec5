//! The blocks of a document, and how one is put together.

use super::chart::Chart;
use super::table::Table;
use super::text::Text;

/// Blocks, one below the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// From the first to the last.
    pub blocks: Vec<Block>,
}

/// A part of a document that stands on lines of its own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// 1 for what a document is about, 2 for a section, 3 for a part of it.
    Heading(u8, Text),
    /// One or more sentences.
    Paragraph(Text),
    /// Names and what is said of each.
    Fields(Vec<Field>),
    /// Points of equal rank.
    List(Vec<Item>),
    /// Rows under a header.
    Table(Table),
    /// Values over the trace.
    Chart(Chart),
    /// Frames; folded where the reader can unfold them.
    Stack(Stack),
    /// Lines to copy.
    Code(Vec<String>),
    /// A section that may be folded where readers can unfold it.
    Details(Text, Document),
    /// A code and what is odd.
    Warning(String, Text),
}

/// A name, and the one or more things said of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// A word or two.
    pub name: String,
    /// At least one.
    pub texts: Vec<Text>,
}

/// A point of a list and what belongs below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The point itself.
    pub text: Text,
    /// A line each.
    pub below: Vec<Text>,
}

impl<T: Into<Text>> From<T> for Item {
    fn from(text: T) -> Self {
        Self { text: text.into(), below: Vec::new() }
    }
}

/// The frames of a stack, innermost first.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// What kind of stack.
    pub name: &'static str,
    /// Each as a place in the source.
    pub frames: Vec<String>,
    /// Frames left out, which say nothing.
    pub folded: u64,
}

impl Document {
    /// What the document is about.
    pub fn title(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Heading(1, text.into()));
    }

    /// What the section that follows is about.
    pub fn heading(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Heading(2, text.into()));
    }

    /// What a part of a section is about.
    pub fn subheading(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Heading(3, text.into()));
    }

    /// One or more sentences.
    pub fn paragraph(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    /// `text`, said of `name`.
    pub fn field(&mut self, name: impl Into<String>, text: impl Into<Text>) {
        self.fields(name, [text]);
    }

    /// `texts`, all said of `name`; nothing where there are none.
    pub fn fields<T: Into<Text>>(
        &mut self,
        name: impl Into<String>,
        texts: impl IntoIterator<Item = T>,
    ) {
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

    /// The points of a list; nothing where there are none.
    pub fn list<T: Into<Item>>(&mut self, items: impl IntoIterator<Item = T>) {
        let items: Vec<Item> = items.into_iter().map(Into::into).collect();
        if !items.is_empty() {
            self.blocks.push(Block::List(items));
        }
    }

    /// A section with a list; nothing where there are no points.
    pub fn list_under<T: Into<Item>>(&mut self, heading: &str, items: impl IntoIterator<Item = T>) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.heading(heading);
            self.list(items);
        }
    }

    /// Rows under a header.
    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// Values over the trace.
    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::Chart(chart));
    }

    /// A stack; nothing where it has no frames.
    pub fn stack(&mut self, stack: Stack) {
        if !stack.frames.is_empty() || stack.folded > 0 {
            self.blocks.push(Block::Stack(stack));
        }
    }

    /// Lines to copy.
    pub fn code(&mut self, lines: impl IntoIterator<Item = impl ToString>) {
        self.blocks.push(Block::Code(lines.into_iter().map(|line| line.to_string()).collect()));
    }

    /// A section that may be folded.
    pub fn details(&mut self, heading: impl Into<Text>, inside: Self) {
        self.blocks.push(Block::Details(heading.into(), inside));
    }

    /// What is odd, and its code.
    pub fn warning(&mut self, code: impl Into<String>, text: impl Into<Text>) {
        self.blocks.push(Block::Warning(code.into(), text.into()));
    }
}

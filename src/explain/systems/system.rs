//! What there is to say of a message of another system.

/// A message of a system besides PyTorch's allocator of device memory.
#[derive(Debug, PartialEq, Eq)]
pub struct System {
    /// The word for it in JSON: whose memory ran out.
    pub kind: &'static str,
    /// Whose words they are.
    pub name: &'static str,
    /// What happened, as a heading.
    pub title: &'static str,
    /// What is printed: a line holds all of them, and the message begins with the first.
    pub words: &'static [&'static str],
    /// The first of [`System::words`] is the whole line.
    pub is_whole_line: bool,
    /// The line only says more of a message: it is left out where the log has another message of this system.
    pub is_sign: bool,
    /// The line goes on from a message that begins with these words, in the line before, and tells whose it is. Alone
    /// it is no message. Empty for any other.
    pub goes_on_from: &'static str,
    /// The amounts in it, in reading order.
    pub amounts: &'static [Amount],
    /// A sentence.
    pub means: &'static str,
    /// What to do, most useful first.
    pub advice: &'static [&'static str],
    /// What would make it certain, where the words alone do not.
    pub settled_by: Option<&'static str>,
    /// Whether a snapshot of PyTorch's allocator would show more.
    pub is_recordable: bool,
}

/// An amount of memory in a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Amount {
    /// The name in JSON.
    pub name: &'static str,
    /// Where it stands.
    pub at: At,
    /// What it is.
    pub meaning: &'static str,
}

/// Where an amount stands.
#[derive(Debug, PartialEq, Eq)]
pub enum At {
    /// Behind these words.
    Behind(&'static str),
    /// Before them.
    Before(&'static str),
}

impl System {
    /// Where its words stand in `text`.
    pub fn find(&self, text: &str) -> Option<usize> {
        let (first, others) = self.words.split_first()?;
        if self.is_whole_line {
            return (text.trim() == *first).then(|| text.find(first)).flatten();
        }
        let at = text.find(first)?;
        others.iter().all(|word| text.contains(word)).then_some(at)
    }
}

/// What rows have in common that say no more.
pub(super) const ANY: System = System {
    kind: "",
    name: "",
    title: "",
    words: &[],
    is_whole_line: false,
    is_sign: false,
    goes_on_from: "",
    amounts: &[],
    means: "",
    advice: &[],
    settled_by: None,
    is_recordable: false,
};

pub(super) const fn behind(
    name: &'static str,
    words: &'static str,
    meaning: &'static str,
) -> Amount {
    Amount { name, at: At::Behind(words), meaning }
}

pub(super) const fn before(
    name: &'static str,
    words: &'static str,
    meaning: &'static str,
) -> Amount {
    Amount { name, at: At::Before(words), meaning }
}

//! The lines that every answer begins with: what happened, who holds most, what to do, what to copy.

use serde::Serialize;

/// What an answer comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// What happened: what failed, where and why, or that nothing did.
    pub answer: String,
    /// Who holds most; `None` where nobody holds anything, or the command does not look at it.
    pub who: Option<String>,
    /// What to do; `None` where nothing needs doing.
    pub action: Option<String>,
    /// What to copy for it: a setting, a line of code to look at, a command or a call.
    pub copy: Option<String>,
}

impl Summary {
    /// That there is nothing to do about `answer`.
    pub fn from_answer(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), ..Self::default() }
    }
}

/// `text` quoted as one word of a POSIX shell.
pub fn quote_shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `oomscope ASKED PATH`; nothing where the file was standard input, which is gone.
pub fn command_line(arguments: &str, path: &str) -> Option<String> {
    (path != "-").then(|| format!("oomscope {arguments} {}", quote_shell_word(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_one_word_of_a_shell() {
        assert_eq!(
            command_line("whatif", "a/b-1.pickle.gz").unwrap(),
            "oomscope whatif a/b-1.pickle.gz"
        );
        assert_eq!(command_line("whatif", "a b'c").unwrap(), r"oomscope whatif 'a b'\''c'");
        assert_eq!(command_line("whatif", "-"), None);
    }
}

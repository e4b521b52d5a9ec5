//! The lines that every answer begins with: what happened, who holds most, what to do, what to copy.

use serde::Serialize;

use crate::conf::Change;

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
    pub fn only(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), ..Self::default() }
    }
}

/// What sets `option` in place of what was `recorded` of it and beside the other recorded options.
pub fn environment(option: &str, recorded: Option<&str>) -> String {
    match Change::of(option).over(recorded.unwrap_or_default()) {
        none if none.is_empty() => "unset PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        options => format!("PYTORCH_CUDA_ALLOC_CONF={}", one_word(&options)),
    }
}

/// `text` as one word of a shell.
fn one_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `oomscope ASKED PATH`; nothing where the file was standard input, which is gone.
pub fn command(asked: &str, path: &str) -> Option<String> {
    (path != "-").then(|| format!("oomscope {asked} {}", one_word(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_one_word_of_a_shell() {
        assert_eq!(
            command("whatif", "a/b-1.pickle.gz").unwrap(),
            "oomscope whatif a/b-1.pickle.gz"
        );
        assert_eq!(command("whatif", "a b'c").unwrap(), r"oomscope whatif 'a b'\''c'");
        assert_eq!(command("whatif", "-"), None);
        assert_eq!(environment("a:1", Some("")), "PYTORCH_CUDA_ALLOC_CONF=a:1");
        assert_eq!(environment("a:1", Some("b:2,a:3")), "PYTORCH_CUDA_ALLOC_CONF=b:2,a:1");
        assert_eq!(environment("a:1", Some("b:[1:2]")), "PYTORCH_CUDA_ALLOC_CONF='b:[1:2],a:1'");
        assert_eq!(environment("default", Some("b:2")), "unset PYTORCH_CUDA_ALLOC_CONF");
    }
}

//! The first lines of every report: what happened, who holds most, what to do, what to copy.

use serde::Serialize;

use crate::base::units::quote_shell_word;
use crate::base::warning::RECORD_HISTORY_CALL;

/// The first lines of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// One sentence: what failed, where and why, or that nothing failed.
    pub answer: String,
    /// The code that holds the most memory; null if none does, or if the command does not look at holders.
    pub who: Option<String>,
    /// The variable that keeps the most memory alive; absent if the recording does not name variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The recommended action; null if nothing needs to be done.
    pub action: Option<String>,
    /// Text to copy for `action`: a setting, a source line, a command or a call; null if there is none.
    pub copy: Option<String>,
}

impl Summary {
    /// A summary with nothing to do.
    pub fn from_answer(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), ..Self::default() }
    }

    /// For a trace of one entry, which the legacy recording API keeps.
    pub(crate) fn from_ring_of_one(device: u64) -> Self {
        Self {
            action: Some("record more than one entry".to_owned()),
            copy: Some(RECORD_HISTORY_CALL.to_owned()),
            ..Self::from_answer(format!("nothing to replay on GPU {device}: its trace has one entry"))
        }
    }
}

/// `oomscope ARGUMENTS PATH`; `None` for standard input, which cannot be read again.
pub(crate) fn command_line(arguments: &str, path: &str) -> Option<String> {
    (path != "-").then(|| format!("oomscope {arguments} {}", quote_shell_word(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(command_line("whatif", "a/b-1.pickle.gz").unwrap(), "oomscope whatif a/b-1.pickle.gz");
        assert_eq!(command_line("whatif", "a b'c").unwrap(), r"oomscope whatif 'a b'\''c'");
        assert_eq!(command_line("whatif", "-"), None);
    }
}

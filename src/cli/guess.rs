//! First guesses on the command line, and their names here: `guesses.toml`, and rules that need no list.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use serde::Deserialize;

use crate::allocator::device::GPUS;
use crate::base::units::quote_shell_word;

static GUESSES: LazyLock<Guesses> = LazyLock::new(|| toml::from_str(include_str!("guesses.toml")).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
struct Guesses {
    command: Vec<Guess>,
    option: Vec<Guess>,
    /// Other names of formats.
    format: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Guess {
    words: String,
    #[serde(default)]
    is: Vec<String>,
    hint: Option<String>,
}

impl Guess {
    fn matches(&self, word: &str) -> bool {
        self.words.split_whitespace().any(|known| match known.strip_suffix('*') {
            Some(start) => word.starts_with(&plain(start)),
            None => word == plain(known),
        })
    }
}

/// The arguments that refused ones stand for, or else one line that names the right command.
type Correction = Result<Vec<OsString>, String>;

/// The letters and digits of a word.
fn plain(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Arguments that were refused.
struct Refused<'a> {
    root: &'a Command,
    /// The command, if it is known.
    command: Option<&'a Command>,
    args: &'a [OsString],
    /// The indexes of the refused word, of the option, or of the option and its refused value.
    at: Range<usize>,
    /// The refused word, or the option.
    word: String,
    /// The option's value.
    value: Option<String>,
}

/// Interprets the arguments that `error` refused.
pub(super) fn correct(root: &Command, args: &[OsString], error: &clap::Error) -> Option<Correction> {
    let texts: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let command = args.iter().skip(1).find_map(|arg| root.find_subcommand(arg));
    let (at, word, value) = match error.kind() {
        ErrorKind::InvalidSubcommand if command.is_none() => {
            let word = context_text(error, ContextKind::InvalidSubcommand)?;
            let index = texts.iter().position(|arg| *arg == word)?;
            (index..index + 1, word, None)
        }
        ErrorKind::UnknownArgument => {
            let word = context_text(error, ContextKind::InvalidArg).filter(|word| word.starts_with('-'))?;
            let index = texts.iter().position(|arg| arg.split('=').next() == Some(word))?;
            (index..index + 1, word, texts[index].split_once('=').map(|(_, value)| value))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context_text(error, ContextKind::InvalidValue)?;
            let word = context_text(error, ContextKind::InvalidArg)?.split(' ').next().unwrap_or_default();
            let inline = format!("{word}={value}");
            let index = texts.iter().position(|arg| *arg == value || *arg == inline)?;
            let start = if index > 0 && texts[index - 1] == word { index - 1 } else { index };
            (start..index + 1, word, Some(value))
        }
        _ => return None,
    };
    let refused = Refused { root, command, args, at, word: word.to_owned(), value: value.map(str::to_owned) };
    match error.kind() {
        ErrorKind::InvalidSubcommand => refused.correct_command(),
        ErrorKind::UnknownArgument => refused.correct_option(),
        _ => refused.correct_value(),
    }
}

/// The text that `error` has as `kind`, if it is one.
pub(super) fn context_text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    let ContextValue::String(text) = error.get(kind)? else { return None };
    Some(text)
}

/// Names the command that writes a file with this extension, if no `--format` does.
pub(super) fn hint_for_file(path: &Path) -> Option<String> {
    let hint = hints(&plain(path.extension()?.to_str()?)).next()?.replace("{args}", "SNAPSHOT");
    let page = quote_shell_word(&path.with_extension("html").to_string_lossy());
    Some(hint.replace("-o report.html", &format!("-o {page}")))
}

/// The hints about options that are called `word`.
fn hints(word: &str) -> impl Iterator<Item = &'static String> {
    GUESSES.option.iter().filter(move |guess| guess.matches(word)).filter_map(|guess| guess.hint.as_ref())
}

impl Refused<'_> {
    fn correct_command(&self) -> Option<Correction> {
        let (word, rest) = (plain(&self.word), &self.args[self.at.end..]);
        if is_program(&self.args[self.at.start]) {
            return Some(Err(describe_run(&self.args[self.at.start..])));
        }
        if let Some(guess) = GUESSES.command.iter().find(|guess| guess.matches(&word)) {
            return match (guess.is.first(), &guess.hint) {
                // `trace`, say, is about a program or about a file.
                (Some(_), _) if rest.first().is_some_and(is_program) => Some(Err(describe_run(rest))),
                (Some(is), _) => Some(Ok(self.replaced(is))),
                (None, hint) => hint.as_ref().map(|hint| self.hint(hint)),
            };
        }
        let is_typo = self.root.get_subcommands().any(|known| is_typo(&word, &plain(known.get_name())));
        if is_typo || self.word.contains(['.', '/', '\\']) {
            return None;
        }
        if rest.iter().any(is_program) || is_on_path(&self.args[self.at.start]) {
            return Some(Err(describe_run(&self.args[self.at.start..])));
        }
        let hint = "`oomscope analyze {args}` shows what holds the memory, and why a request failed";
        rest.iter().any(|arg| Path::new(arg).exists()).then(|| self.hint(hint))
    }

    fn correct_option(&self) -> Option<Correction> {
        let (command, word) = (self.command?, plain(&self.word));
        let names = GUESSES.option.iter().filter(|guess| guess.matches(&word)).flat_map(|guess| &guess.is);
        if let Some(is) = names.into_iter().find(|is| has_option(command, &first_word(is))) {
            let value = self.value.as_ref().map_or_else(String::new, |value| format!("={value}"));
            return Some(Ok(self.replaced(&format!("{is}{value}"))));
        }
        // An option that a hint begins with has to be one of the command.
        let mut here = hints(&word).filter(|hint| !hint.starts_with("`-") || has_option(command, &first_word(hint)));
        let name = self.word.trim_start_matches('-');
        let owners = self.root.get_subcommands().filter(|other| name.len() > 1 && has_option(other, name));
        let owners: Vec<String> = owners.map(|other| format!("`oomscope {}`", other.get_name())).take(2).collect();
        self.correct_format(&word).or_else(|| here.next().map(|hint| self.hint(hint))).or_else(|| {
            (!owners.is_empty()).then(|| Err(format!("{} is an option of {}", self.word, owners.join(" and "))))
        })
    }

    fn correct_value(&self) -> Option<Correction> {
        let (command, value) = (self.command?.get_name(), self.value.as_deref()?);
        let number = value.trim_start_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ':');
        match &*self.word {
            "--device" if number.parse::<u64>().is_ok() => Some(Ok(self.replaced(&format!("--device {number}")))),
            "--to" if command != "export" => None,
            "--format" | "--to" => {
                self.correct_format(&plain(value)).or_else(|| Some(self.hint(hints(&plain(value)).next()?)))
            }
            _ if command == "fit" && !value.contains('=') && Path::new(value).exists() => {
                let args: Vec<&OsString> = self.args.iter().skip(1).filter(|arg| *arg != command).collect();
                Some(Err(format!("for one recording, `oomscope whatif {}`", shell_line(args))))
            }
            _ => None,
        }
    }

    /// A format of this command, or of another.
    fn correct_format(&self, word: &str) -> Option<Correction> {
        let format = GUESSES.format.get(word).map_or(word, String::as_str);
        if has_format(self.command?, format) {
            return Some(Ok(self.replaced(&format!("--format {format}"))));
        }
        let writers = ["analyze", "export", "check"].into_iter().filter_map(|name| self.root.find_subcommand(name));
        let other = writers.into_iter().find(|other| has_format(other, format))?;
        Some(self.hint(&format!("`oomscope {} {{args}} --format {format}` writes it", other.get_name())))
    }

    /// The arguments with `words` in place of those that were refused.
    fn replaced(&self, words: &str) -> Vec<OsString> {
        let mut args = self.args.to_vec();
        args.splice(self.at.clone(), words.split(' ').map(OsString::from));
        args
    }

    /// `hint` with its places filled.
    fn hint(&self, hint: &str) -> Correction {
        let is_option = self.word.starts_with('-') && self.value.is_none();
        let next = self
            .args
            .get(self.at.end)
            .filter(|arg| is_option && !arg.to_string_lossy().starts_with('-') && !Path::new(arg).exists());
        let value = self.value.clone().or_else(|| Some(next?.to_string_lossy().into_owned()));
        let after = self.at.end + usize::from(next.is_some());
        let others = self.args[1..self.at.start].iter().chain(&self.args[after..]).filter(|arg| {
            match (arg.to_str(), self.command) {
                (Some(arg), Some(command)) if arg.starts_with("--") => {
                    has_option(command, arg.trim_start_matches('-').split('=').next().unwrap_or_default())
                }
                (Some(arg), Some(command)) => arg != command.get_name(),
                _ => *arg != "--",
            }
        });

        let gpus: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
        let (args, program) = (shell_line(others), shell_line(self.args[after..].iter().filter(|arg| *arg != "--")));
        Err(hint
            .replace("{args}", if args.is_empty() { "SNAPSHOT" } else { &args })
            .replace("{command}", if program.is_empty() { "python train.py" } else { &program })
            .replace("{value}", &value.unwrap_or_else(|| "SIZE".to_owned()))
            .replace("{gpus}", &gpus.join(" ")))
    }
}

/// The first word of a hint, without its quote and dashes.
fn first_word(words: &str) -> String {
    words.trim_matches(['-', '`']).split(['=', ' ', '`']).next().unwrap_or_default().to_owned()
}

/// Whether `arg` is Python, a program in it, or the mark before a command.
fn is_program(arg: &OsString) -> bool {
    let name = arg.to_string_lossy();
    name == "--" || name.starts_with("python") || name.ends_with(".py")
}

/// The commands that run a program.
fn describe_run(program: &[OsString]) -> String {
    let is_script = program.first().is_some_and(|first| first.to_string_lossy().ends_with(".py"));
    let program = shell_line(program.iter().skip_while(|arg| *arg == "--"));
    let program = if is_script { format!("python {program}") } else { program };
    format!("`oomscope run -- {program}` records it; without a GPU, `oomscope dry-run -- {program}`")
}

/// `args` as they are typed in a shell.
pub(super) fn shell_line<'a>(args: impl IntoIterator<Item = &'a OsString>) -> String {
    args.into_iter().map(|arg| quote_shell_word(&arg.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

pub(super) fn is_on_path(program: &OsStr) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|place| place.join(program).is_file()))
}

fn has_option(command: &Command, name: &str) -> bool {
    let mut names = command.get_arguments().filter_map(Arg::get_long_and_visible_aliases);
    name == "color" || names.any(|names| names.contains(&name))
}

fn has_format(command: &Command, format: &str) -> bool {
    let options = command.get_arguments().filter(|arg| arg.get_long() == Some("format"));
    options.flat_map(Arg::get_possible_values).any(|value| value.get_name() == format)
}

/// One letter in four differs at most.
fn is_typo(word: &str, known: &str) -> bool {
    strsim::osa_distance(word, known) * 4 <= known.len().max(4)
}

/// `error` with `hint` in place of clap's tips. Without a hint, tips about names that are more than a typo away go.
pub(super) fn with_hint(mut error: clap::Error, hint: Option<String>) -> clap::Error {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let word = kinds.into_iter().find_map(|kind| context_text(&error, kind)).map(plain);
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        let suggested = match error.remove(kind) {
            Some(ContextValue::String(known)) => vec![known],
            Some(ContextValue::Strings(known)) => known,
            _ => Vec::new(),
        };
        let near = suggested.into_iter().filter(|known| word.as_ref().is_some_and(|word| is_typo(word, &plain(known))));
        let near: Vec<String> = near.collect();
        if !near.is_empty() && hint.is_none() {
            error.insert(kind, ContextValue::Strings(near));
        }
    }
    error.remove(ContextKind::Suggested);
    if let Some(hint) = hint {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_guess_that_has_a_word_has_a_meaning() {
        for guess in GUESSES.command.iter().chain(&GUESSES.option) {
            assert!(guess.hint.is_some() == guess.is.is_empty(), "{}", guess.words);
        }
        assert_eq!(toml::from_str::<Guesses>(include_str!("guesses.toml")).err(), None);
    }
}

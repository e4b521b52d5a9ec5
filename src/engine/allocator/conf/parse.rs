//! Parsing `key:value,key:[a:b,c:d]`, as leniently as PyTorch does.

use super::dialect::{ConfError, Dialect, KnownOption, OptionMeaning};
use super::number;
use super::settings::{Reserve, Settings};
use crate::allocator::releases::Rule;
use crate::base::units::{GIB, MIB};

/// How to treat a key that the release does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Fails, as PyTorch does.
    Refuse,
    /// Warns: for a string that some release has already accepted. A key of a later release has the meaning that it
    /// has there.
    Warn,
}

/// The result of parsing a settings string.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedConf {
    /// The settings in effect afterwards.
    pub settings: Settings,
    /// One sentence for each option that was ignored.
    pub warnings: Vec<String>,
}

/// Parses `text` as PyTorch 2.`minor` does at run time, with the settings `before` in effect.
///
/// Parsing resets some settings to their defaults and keeps the others. Options of pinned memory have no effect.
/// `backend:cudaMallocAsync` is accepted, although PyTorch allows it only in the environment.
pub fn parse(text: &str, before: &Settings, minor: u32, unknown: UnknownKeys) -> Result<ParsedConf, ConfError> {
    let dialect = Dialect { minor };
    let mut settings = Settings {
        max_split_size: u64::MAX,
        roundup_power2_divisions: [0; 16],
        garbage_collection_threshold: 0.0,
        one_division_is_exact: !dialect.has(Rule::ZeroDivisions),
        ..before.clone()
    };
    let tokens = Tokens::tokenize(text, dialect);
    if unknown == UnknownKeys::Warn || Dialect::find_option(LARGE_SEGMENT).is_some_and(|o| dialect.has_option(o)) {
        read_large_segment_size(&tokens, dialect, &mut settings)?;
    }
    if dialect.has(Rule::ResetsNonSplitRounding) {
        settings.max_non_split_rounding = settings.large_segment_size;
    }
    let mut reader = Reader { tokens, dialect, unknown, settings, warnings: Vec::new() };
    if dialect.has(Rule::SharedParser) {
        reader.read(Some(true))?;
        reader.read(Some(false))?;
    } else {
        reader.read(None)?;
    }
    Ok(ParsedConf { settings: reader.settings, warnings: reader.warnings })
}

/// Words and punctuation of a settings string.
struct Tokens {
    list: Vec<String>,
    /// Colons and commas are checked, and a missing one is reported.
    is_strict: bool,
}

impl Tokens {
    /// Splits `text` at punctuation, which becomes tokens too, and removes blanks.
    fn tokenize(text: &str, dialect: Dialect) -> Self {
        let is_strict = !dialect.has(Rule::SharedParser);
        let mut list = Vec::new();
        let mut word = String::new();
        for c in text.chars() {
            if matches!(c, ',' | ':' | '[' | ']') {
                if !word.is_empty() {
                    list.push(std::mem::take(&mut word));
                }
                list.push(c.to_string());
            } else if c != ' ' && (is_strict || !('\t'..='\r').contains(&c)) {
                word.push(c);
            }
        }
        if !word.is_empty() {
            list.push(word);
        }
        Self { list, is_strict }
    }

    fn is_token(&self, at: usize, token: &str) -> bool {
        self.list.get(at).is_some_and(|found| found == token)
    }

    /// The token at `at`; an error if the string ends before it.
    fn require(&self, at: usize) -> Result<&str, ConfError> {
        self.list.get(at).map(String::as_str).ok_or_else(|| {
            ConfError::new("Index out of bounds in ConfigTokenizer")
                .with_help("the string ends where a value should follow".to_owned())
        })
    }

    /// Checks that the token at `at` is `mark`. A dialect that is not strict accepts any token.
    fn expect_mark(&self, at: usize, mark: &str) -> Result<(), ConfError> {
        if !self.is_strict {
            return self.require(at).map(drop);
        }
        if self.is_token(at, mark) {
            return Ok(());
        }
        let message = format!("Error parsing CachingAllocator settings, expected {mark}");
        let help = match self.list.get(at) {
            Some(token) => format!("found '{token}'"),
            None => "the string ends there".to_owned(),
        };
        Err(ConfError::new(message).with_help(help))
    }

    /// Position of the last token of the value that belongs to the key at `at`: the value, or the `]` of a list.
    fn skip_value(&self, at: usize) -> Result<usize, ConfError> {
        self.require(at + 1)?;
        if self.require(at + 2)? != "[" {
            return Ok(at + 2);
        }
        let rest = self.list.iter().skip(at + 3).position(|token| token == "]");
        rest.map(|rest| at + 3 + rest).ok_or_else(unclosed_list)
    }
}

/// PyTorch's error for a list without `]`.
fn unclosed_list() -> ConfError {
    let message = "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
    ConfError::new(message)
}

const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// The large segment size bounds other options, so PyTorch reads it first, wherever its key is.
fn read_large_segment_size(tokens: &Tokens, dialect: Dialect, settings: &mut Settings) -> Result<(), ConfError> {
    let mut at = 0;
    while at < tokens.list.len() {
        if tokens.is_token(at, LARGE_SEGMENT) {
            tokens.require(at + 1)?;
            at += 2;
            let mib = dialect.parse_mebibytes(tokens.require(at)?, LARGE_SEGMENT)?;
            if mib <= 10 {
                return fail(format!("CachingAllocator option {LARGE_SEGMENT} must be > 10 MB"));
            }
            settings.large_segment_size = mib_to_bytes(mib);
        }
        at += 1;
    }
    Ok(())
}

fn mib_to_bytes(mib: u64) -> u64 {
    mib.min(u64::MAX / MIB) * MIB
}

fn fail<T>(message: impl Into<String>) -> Result<T, ConfError> {
    Err(ConfError::new(message))
}

/// Converts the error of parsing `token`, the value of `key`. PyTorch's message is only the name of the C++
/// function, `parser`.
fn map_number_error<T>(read: Result<T, &'static str>, parser: &str, token: &str, key: &str) -> Result<T, ConfError> {
    read.map_err(|error| ConfError::new(parser).with_help(format!("'{token}' {error}, for {key}")))
}

fn parse_fraction(token: &str, key: &str) -> Result<f64, ConfError> {
    map_number_error(number::parse_real(token), "stod", token, key)
}

impl Dialect {
    /// A number of MiB, or any other whole number.
    fn parse_mebibytes(self, token: &str, key: &str) -> Result<u64, ConfError> {
        let read = if self.has(Rule::SharedParser) { number::parse_unsigned(token) } else { number::parse_int(token) };
        map_number_error(read, "stoull", token, key)
    }
}

struct Reader {
    tokens: Tokens,
    dialect: Dialect,
    unknown: UnknownKeys,
    settings: Settings,
    warnings: Vec<String>,
}

impl Reader {
    /// Reads the whole string. Applies all options, or only those whose `is_shared` equals `shared`.
    fn read(&mut self, shared: Option<bool>) -> Result<(), ConfError> {
        let mut at = 0;
        while let Some(key) = self.tokens.list.get(at).cloned() {
            at = self.read_option(&key, at, shared)? + 1;
            if at < self.tokens.list.len() {
                self.tokens.expect_mark(at, ",")?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Reads the option at `at`; returns the position of its last token.
    fn read_option(&mut self, key: &str, at: usize, shared: Option<bool>) -> Result<usize, ConfError> {
        let known = Dialect::find_option(key);
        let first_reading = shared != Some(false);
        if known.is_none_or(|option| !self.dialect.has_option(option)) {
            let parser = if first_reading { "Accelerator" } else { "CUDA" };
            let error = self.dialect.unrecognized_key(key, parser);
            if self.unknown == UnknownKeys::Refuse {
                return Err(error);
            }
            if first_reading {
                self.warnings.push(error.to_string());
            }
        }
        match known {
            Some(option) if shared.is_none_or(|shared| shared == option.is_shared) => self.read_value(option, at),
            Some(_) => self.tokens.skip_value(at),
            None => Ok(self.tokens.skip_value(at).unwrap_or(self.tokens.list.len())),
        }
    }

    /// Reads the value of `option`, whose key is at `at`; returns the position of its last token.
    fn read_value(&mut self, option: &KnownOption, at: usize) -> Result<usize, ConfError> {
        let (name, value_at) = (option.key, at + 2);
        self.tokens.expect_mark(at + 1, ":")?;
        let token = self.tokens.require(value_at)?.to_owned();
        match option.meaning {
            OptionMeaning::Ignored => return self.tokens.skip_value(at),
            // `read_large_segment_size` has set it.
            OptionMeaning::LargeSegmentSize => {}
            OptionMeaning::MaxSplitSize => self.settings.max_split_size = self.parse_size_with_minimum(&token, name)?,
            OptionMeaning::MaxNonSplitRounding => {
                self.settings.max_non_split_rounding = self.parse_size_with_minimum(&token, name)?;
            }
            OptionMeaning::GarbageCollection => {
                let threshold = parse_fraction(&token, name)?;
                if threshold <= 0.0 || threshold >= 1.0 || threshold.is_nan() {
                    return fail("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
                }
                self.settings.garbage_collection_threshold = threshold;
            }
            OptionMeaning::Divisions => return self.read_divisions(&token, value_at),
            OptionMeaning::Flag(setting) => *setting(&mut self.settings) = Self::parse_flag(&token, value_at)?,
            OptionMeaning::Backend => self.settings.backend_is_async = Self::parse_backend(&token)?,
            OptionMeaning::Fraction => {
                let fraction = parse_fraction(&token, name)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return fail("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
                }
                self.settings.per_process_memory_fraction = fraction;
            }
            OptionMeaning::Reserve => {
                if let Some(reserve) = self.parse_reserve(&token) {
                    self.settings.expandable_segments_reserve = Some(reserve);
                }
            }
        }
        Ok(value_at)
    }

    /// Parses a size in MiB, which must be at least (or above) the large segment size. Returns bytes.
    fn parse_size_with_minimum(&self, token: &str, name: &str) -> Result<u64, ConfError> {
        let mib = self.dialect.parse_mebibytes(token, name)?;
        let minimum = self.settings.large_segment_size / MIB;
        let equal = self.dialect.has(Rule::SharedParser);
        if mib > minimum || (equal && mib == minimum) {
            return Ok(mib_to_bytes(mib));
        }
        let sign = if equal { ">=" } else { ">" };
        fail(format!("CachingAllocator option {name} too small, must be {sign} {minimum}"))
    }

    fn parse_flag(token: &str, at: usize) -> Result<bool, ConfError> {
        match token {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => fail(format!("Expected 'True' or 'False' at index {at} in ConfigTokenizer but got '{token}'")),
        }
    }

    fn parse_backend(token: &str) -> Result<bool, ConfError> {
        match token {
            "native" => Ok(false),
            "cudaMallocAsync" => Ok(true),
            _ => fail("Unknown allocator backend, options are native and cudaMallocAsync"),
        }
    }

    fn read_divisions(&mut self, token: &str, at: usize) -> Result<usize, ConfError> {
        if token == "[" {
            return self.read_divisions_list(at);
        }
        let all = self.dialect.parse_mebibytes(token, "roundup_power2_divisions")?;
        if !all.is_power_of_two() {
            return fail("For roundups, the divisions has to be power of 2 ");
        }
        self.settings.roundup_power2_divisions = [all; 16];
        Ok(at)
    }

    fn read_divisions_list(&mut self, mut at: usize) -> Result<usize, ConfError> {
        let mut is_first = true;
        let mut last = 0;
        loop {
            at += 1;
            let Some(interval) = self.tokens.list.get(at).cloned() else {
                // Up to 2.9 a list needs no `]`.
                return if self.tokens.is_strict { Ok(at) } else { Err(unclosed_list()) };
            };
            if interval == "]" {
                return Ok(at);
            }
            self.tokens.expect_mark(at + 1, ":")?;
            at += 2;
            let divisions = self.parse_divisions_in_list(at)?;
            let buckets = &mut self.settings.roundup_power2_divisions;
            if interval == ">" {
                let from = last + usize::from(self.dialect.has(Rule::SharedParser));
                buckets.iter_mut().skip(from).for_each(|bucket| *bucket = divisions);
            } else {
                let bucket = parse_bucket(&interval)?;
                let from = if is_first { 0 } else { bucket };
                let filled = buckets.iter_mut().take(bucket + 1).skip(from);
                filled.for_each(|bucket| *bucket = divisions);
                is_first = false;
                last = bucket;
            }
            if !self.tokens.is_token(at + 1, "]") {
                at += 1;
                self.tokens.expect_mark(at, ",")?;
            }
        }
    }

    fn parse_divisions_in_list(&self, at: usize) -> Result<u64, ConfError> {
        let divisions = self.dialect.parse_mebibytes(self.tokens.require(at)?, "roundup_power2_divisions")?;
        let zero_is_off = self.dialect.has(Rule::ZeroDivisions);
        if divisions.is_power_of_two() || (divisions == 0 && zero_is_off) {
            return Ok(divisions);
        }
        let or_zero = if zero_is_off { "or 0 to disable roundup " } else { "" };
        fail(format!("For roundups, the divisions has to be power of 2 {or_zero}"))
    }

    /// A reserve size. An invalid one is ignored with PyTorch's warning.
    fn parse_reserve(&mut self, token: &str) -> Option<Reserve> {
        let gib = token.strip_suffix(['G', 'g']);
        let amount = gib.unwrap_or(token).trim_start().parse().ok().filter(|n: &f64| *n > 0.0 && n.is_finite());
        if amount.is_none() {
            self.warnings.push(format!(
                "Ignoring invalid expandable-segment reserve value '{token}' in PYTORCH_CUDA_ALLOC_CONF (expected a \
                 positive, finite fraction like 0.5 or an absolute size like 40G); using default."
            ));
        }
        let amount = amount?;
        if gib.is_none() {
            return Some(Reserve::Fraction(amount));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and too much becomes the most"
        )]
        Some(Reserve::Bytes((amount * GIB as f64) as u64))
    }
}

/// The index in `roundup_power2_divisions` for sizes of `interval` MiB.
fn parse_bucket(interval: &str) -> Result<usize, ConfError> {
    let mib = map_number_error(number::parse_unsigned(interval), "stoull", interval, "roundup_power2_divisions")?;
    if !mib.is_power_of_two() {
        return fail("For roundups, the intervals have to be power of 2 ");
    }
    Ok(usize::try_from(mib.trailing_zeros()).map_or(15, |bucket| bucket.min(15)))
}

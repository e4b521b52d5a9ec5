//! Pickles without Python: values and the ways in which picklers write them, and raw opcodes for
//! what no pickler would write.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

/// A Python value.
#[derive(Clone, Debug, PartialEq)]
pub enum Py {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    List(Vec<Py>),
    Tuple(Vec<Py>),
    Dict(Vec<(Py, Py)>),
    /// Opcodes that leave one value on the stack.
    Raw(Vec<u8>),
}

impl From<i128> for Py {
    fn from(n: i128) -> Self {
        Py::Int(n)
    }
}

impl From<u64> for Py {
    fn from(n: u64) -> Self {
        Py::Int(n.into())
    }
}

impl From<i32> for Py {
    fn from(n: i32) -> Self {
        Py::Int(n.into())
    }
}

impl From<&str> for Py {
    fn from(text: &str) -> Self {
        Py::Str(text.to_owned())
    }
}

impl From<Vec<Py>> for Py {
    fn from(items: Vec<Py>) -> Self {
        Py::List(items)
    }
}

/// A dict with text keys.
pub fn dict<const N: usize>(pairs: [(&str, Py); N]) -> Py {
    Py::Dict(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

impl Py {
    /// The pairs of a dict.
    pub fn pairs(&mut self) -> &mut Vec<(Py, Py)> {
        match self {
            Py::Dict(pairs) => pairs,
            other => panic!("{other:?} is no dict"),
        }
    }

    /// The value of `key` in a dict; `None` is stored there first if it is missing.
    pub fn at(&mut self, key: &str) -> &mut Py {
        let key = Py::from(key);
        let pairs = self.pairs();
        let index = pairs.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
            pairs.push((key, Py::None));
            pairs.len() - 1
        });
        &mut pairs[index].1
    }

    /// Takes `key` out of a dict.
    pub fn without(mut self, key: &str) -> Py {
        let before = self.pairs().len();
        self.pairs().retain(|(k, _)| *k != Py::from(key));
        assert_eq!(self.pairs().len() + 1, before, "no key '{key}'");
        self
    }

    /// The dict with `key` set to `value`.
    pub fn with(mut self, key: &str, value: impl Into<Py>) -> Py {
        *self.at(key) = value.into();
        self
    }

    /// As the pickler of CPython writes it under `protocol`, 2 to 5.
    pub fn pickle(&self, protocol: u8) -> Vec<u8> {
        assert!((2..=5).contains(&protocol));
        let mut script = Script::default().op(0x80).raw(&[protocol]);
        script.value(self, Style::Python);
        script.op(b'.').0
    }

    /// As the C++ pickler of PyTorch wrote it when it tagged aggregates: every list and dict is an
    /// argument of `torch.jit._pickle.restore_type_tag`, and is put into the memo when it is done.
    pub fn tagged_pickle(&self) -> Vec<u8> {
        let mut script = Script::default().op(0x80).raw(&[2]);
        script.value(self, Style::Tagged { next: 0, global: None });
        script.op(b'.').0
    }

    /// As `json.dump` writes it: a tuple is a list, keys are text.
    pub fn json(&self) -> String {
        let list = |items: &[Py]| format!("[{}]", items.iter().map(Py::json).collect::<Vec<_>>().join(", "));
        match self {
            Py::None => "null".to_owned(),
            Py::Bool(b) => b.to_string(),
            Py::Int(n) => n.to_string(),
            Py::Float(x) => format!("{x:?}"),
            Py::Str(text) => serde_json::to_string(text).unwrap(),
            Py::List(items) | Py::Tuple(items) => list(items),
            Py::Dict(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{}: {}", k.json(), v.json())).collect();
                format!("{{{}}}", pairs.join(", "))
            }
            Py::Bytes(_) | Py::Raw(_) => panic!("JSON has nothing for {self:?}"),
        }
    }
}

#[derive(Clone, Copy)]
enum Style {
    Python,
    Tagged { next: u8, global: Option<u8> },
}

/// A pickle opcode by opcode.
#[derive(Clone, Default)]
pub struct Script(pub Vec<u8>);

impl Script {
    pub fn op(mut self, code: u8) -> Self {
        self.0.push(code);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// BINUNICODE
    pub fn text(mut self, text: &str) -> Self {
        self.value(&text.into(), Style::Python);
        self
    }

    pub fn int(mut self, n: i128) -> Self {
        self.value(&Py::Int(n), Style::Python);
        self
    }

    pub fn py(mut self, value: &Py) -> Self {
        self.value(value, Style::Python);
        self
    }

    /// LONG_BINPUT
    pub fn put(self, slot: u32) -> Self {
        self.op(b'r').raw(&slot.to_le_bytes())
    }

    /// LONG_BINGET
    pub fn get(self, slot: u32) -> Self {
        self.op(b'j').raw(&slot.to_le_bytes())
    }

    /// The opcodes followed by STOP.
    pub fn stop(self) -> Vec<u8> {
        self.op(b'.').0
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes `value`; returns the style for the next, which counts memo slots.
    fn value(&mut self, value: &Py, style: Style) -> Style {
        match value {
            Py::None => self.add(b"N"),
            Py::Bool(b) => self.add(if *b { b"\x88" } else { b"\x89" }),
            Py::Int(n) => self.integer(*n),
            Py::Float(x) => {
                self.add(b"G");
                self.add(&x.to_be_bytes());
            }
            Py::Str(text) => {
                self.add(b"X");
                self.add(&u32::try_from(text.len()).unwrap().to_le_bytes());
                self.add(text.as_bytes());
            }
            Py::Bytes(bytes) => {
                self.add(b"B");
                self.add(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
                self.add(bytes);
            }
            Py::Raw(opcodes) => self.add(opcodes),
            Py::Tuple(items) => {
                self.add(b"(");
                let style = items.iter().fold(style, |style, item| self.value(item, style));
                self.add(b"t");
                return style;
            }
            Py::List(items) => {
                let style = self.open(style);
                self.add(b"]");
                // CPython ends a batch after 1000 items; PyTorch does not.
                let batch = if matches!(style, Style::Python) { 1000 } else { usize::MAX };
                let mut inner = style;
                for items in items.chunks(batch) {
                    self.add(b"(");
                    inner = items.iter().fold(inner, |style, item| self.value(item, style));
                    self.add(b"e");
                }
                return self.close(inner, "List[Any]");
            }
            Py::Dict(pairs) => {
                let style = self.open(style);
                self.add(b"}(");
                let style = pairs.iter().fold(style, |style, (key, value)| {
                    let style = self.value(key, style);
                    self.value(value, style)
                });
                self.add(b"u");
                return self.close(style, "Dict[str, Any]");
            }
        }
        style
    }

    fn integer(&mut self, n: i128) {
        match (u8::try_from(n), i32::try_from(n)) {
            (Ok(n), _) => self.add(&[b'K', n]),
            (_, Ok(n)) => {
                self.add(b"J");
                self.add(&n.to_le_bytes());
            }
            _ => {
                // LONG1 with as few bytes as keep the sign, as CPython writes it.
                let bytes = n.to_le_bytes();
                let kept = (1..16)
                    .find(|&kept| {
                        let rest = 8 * (16 - kept);
                        n << rest >> rest == n
                    })
                    .unwrap_or(16);
                self.add(&[0x8a, u8::try_from(kept).unwrap()]);
                self.add(&bytes[..kept]);
            }
        }
    }

    fn open(&mut self, style: Style) -> Style {
        match style {
            Style::Python => style,
            Style::Tagged { next, global: Some(slot) } => {
                self.add(&[b'h', slot]);
                Style::Tagged { next, global: Some(slot) }
            }
            Style::Tagged { next, global: None } => {
                self.add(b"ctorch.jit._pickle\nrestore_type_tag\nq");
                self.add(&[next]);
                Style::Tagged { next: next + 1, global: Some(next) }
            }
        }
    }

    fn close(&mut self, style: Style, tag: &str) -> Style {
        match style {
            Style::Python => style,
            Style::Tagged { next, global } => {
                self.value(&tag.into(), Style::Python);
                self.add(b"\x86Rq");
                self.add(&[next]);
                Style::Tagged { next: next.checked_add(1).expect("BINPUT counts to 255"), global }
            }
        }
    }
}

use std::fmt;

/// The most extension fields a frame may carry. Real headers have at most some thirty; the bound keeps a hostile header from
/// costing quadratic time.
pub const MAX_EXT_FIELDS: usize = 256;

/// Room for the names and values of most headers, in bytes.
const USUAL_TEXT: usize = 256;
/// The number of fields of most headers, at most.
const USUAL_FIELDS: usize = 16;

/// The named string fields of a command (`extFields`). A name occurs once; the last [`set`](Self::set) wins; the order of
/// first insertion is kept, so that what was read is written back in the same order.
///
/// All names and values share one buffer: reading a header costs two allocations, however many fields it has.
#[derive(Clone, Default)]
pub struct ExtFields {
    text: String,
    spans: Vec<Span>,
}

/// Where a name and, right behind it, its value lie in the buffer.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl ExtFields {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for names and values of `bytes` in total, to avoid growing.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), spans: Vec::with_capacity(USUAL_FIELDS) }
    }

    /// The value of a field. Names are compared exactly.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.position(name).and_then(|at| self.pair(at)).map(|(_, value)| value)
    }

    /// Sets a field, replacing an earlier value of the same name.
    pub fn set(&mut self, name: &str, value: impl AsRef<str>) {
        if self.spans.capacity() == 0 {
            *self = Self::with_capacity(USUAL_TEXT);
        }
        let start = self.text.len();
        self.text.push_str(name);
        self.text.push_str(value.as_ref());
        self.commit(start, name.len());
    }

    /// Sets a field to the decimal form of a number, without a detour over a string.
    pub fn set_number(&mut self, name: &str, value: impl itoa::Integer) {
        self.set(name, itoa::Buffer::new().format(value));
    }

    /// The fields in order of first insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.spans.len()).filter_map(|at| self.pair(at))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Gives the caller the buffer to append a name and its value to; [`commit`](Self::commit) then makes them a field.
    pub(super) fn buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Drops what was appended to the buffer since it had `start` bytes.
    pub(super) fn discard(&mut self, start: usize) {
        self.text.truncate(start);
    }

    /// Makes a field of what was appended to the buffer since it had `start` bytes: a name of `name_len` bytes and its value.
    /// Both must lie on character boundaries, which is so if they were appended as strings.
    pub(super) fn commit(&mut self, start: usize, name_len: usize) {
        let value_len = self.text.len().saturating_sub(start + name_len);
        let span = Span { start, name_len, value_len };
        let name = self.text.get(start..start + name_len).unwrap_or_default();
        match self.position(name).and_then(|at| self.spans.get_mut(at)) {
            Some(old) => *old = span,
            None => self.spans.push(span),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let (text, name) = (self.text.as_bytes(), name.as_bytes());
        self.spans.iter().position(|s| {
            // Length and first byte tell nearly all apart without a call to compare memory.
            s.name_len == name.len()
                && (name.is_empty()
                    || text.get(s.start) == name.first()
                        && (name.len() == 1 || text.get(s.start..s.start + s.name_len) == Some(name)))
        })
    }

    fn pair(&self, at: usize) -> Option<(&str, &str)> {
        let s = self.spans.get(at)?;
        let value_start = s.start + s.name_len;
        Some((self.text.get(s.start..value_start)?, self.text.get(value_start..value_start + s.value_len)?))
    }
}

/// Equal if they have the same fields, in whatever order.
impl PartialEq for ExtFields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl Eq for ExtFields {}

impl fmt::Debug for ExtFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for ExtFields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut ext = Self::new();
        for (name, value) in pairs {
            ext.set(name.as_ref(), value);
        }
        ext
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_set_wins_and_keeps_its_place() {
        let mut ext = ExtFields::new();
        ext.set("a", "1");
        ext.set("b", "zwei");
        ext.set("a", "drei");
        ext.set_number("c", -5i64);
        assert_eq!(ext.iter().collect::<Vec<_>>(), [("a", "drei"), ("b", "zwei"), ("c", "-5")]);
        assert_eq!(ext.len(), 3);
        assert_eq!(ext.get("b"), Some("zwei"));
        assert_eq!(ext.get("bz"), None, "a name is not found inside its neighbour");
        assert_eq!(ext.get(""), None);
    }

    #[test]
    fn equality_ignores_order_and_history() {
        let one: ExtFields = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        let two: ExtFields = [("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(one, two);
        let three: ExtFields = [("b", "2"), ("a", "4")].into_iter().collect();
        assert_ne!(one, three);
        let more: ExtFields = [("b", "2"), ("a", "3"), ("c", "")].into_iter().collect();
        assert_ne!(one, more);
    }
}

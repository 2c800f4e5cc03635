use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a bit cannot be set, or a text is no set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BitSetError {
    /// A bit at or beyond [`BitSet::MAX_BITS`].
    #[error("bit {0} is beyond the limit of {max}", max = BitSet::MAX_BITS)]
    TooLarge(usize),
    /// Not base64.
    #[error("a set of bits is not base64")]
    NotBase64,
}

/// A set of small numbers in the form of Java's `BitSet.toByteArray`: bit i is in byte i / 8 with mask 1 << (i % 8). In JSON it
/// is base64.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct BitSet(Vec<u8>);

impl BitSet {
    /// Bits a set may have. Memory and time grow with the highest bit, so a hostile or odd one is refused: split instead.
    pub const MAX_BITS: usize = 65_536;

    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a bit.
    ///
    /// # Errors
    /// The bit is not below [`Self::MAX_BITS`].
    pub fn set(&mut self, bit: usize) -> Result<(), BitSetError> {
        if bit >= Self::MAX_BITS {
            return Err(BitSetError::TooLarge(bit));
        }
        if self.0.len() <= bit / 8 {
            self.0.resize(bit / 8 + 1, 0);
        }
        if let Some(byte) = self.0.get_mut(bit / 8) {
            *byte |= 1 << (bit % 8);
        }
        Ok(())
    }

    /// Whether a bit is in the set.
    pub fn contains(&self, bit: usize) -> bool {
        self.0.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    /// The bits, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, byte)| **byte != 0).flat_map(|(at, byte)| {
            let byte = *byte;
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| at * 8 + bit)
        })
    }

    /// Number of bits in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether no bit is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the base64 form.
    ///
    /// # Errors
    /// It is not base64, or has bits beyond [`Self::MAX_BITS`].
    pub fn from_base64(text: &str) -> Result<Self, BitSetError> {
        if text.len() > Self::MAX_BITS / 8 * 4 / 3 + 4 {
            return Err(BitSetError::TooLarge(text.len() / 4 * 3 * 8));
        }
        let mut bytes = STANDARD.decode(text).map_err(|_| BitSetError::NotBase64)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        if bytes.len() > Self::MAX_BITS / 8 {
            return Err(BitSetError::TooLarge(bytes.len() * 8));
        }
        Ok(Self(bytes))
    }

    /// The base64 form.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

impl Serialize for BitSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_base64())
    }
}

impl<'de> Deserialize<'de> for BitSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::from_base64(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_as_java_writes_them() {
        let mut bits = BitSet::new();
        assert!(bits.is_empty());
        for bit in [2, 9, 2] {
            assert_eq!(bits.set(bit), Ok(()));
        }
        assert_eq!(bits.to_base64(), "BAI=", "bytes 0x04 0x02");
        assert_eq!(bits.iter().collect::<Vec<_>>(), [2, 9]);
        assert_eq!(bits.len(), 2);
        assert!(bits.contains(9) && !bits.contains(8) && !bits.contains(1_000_000));
        assert_eq!(BitSet::from_base64("BAI="), Ok(bits.clone()));
        assert_eq!(BitSet::from_base64("BAIAAAA="), Ok(bits), "zero bytes at the end do not count");
    }

    #[test]
    fn bounds() {
        let mut bits = BitSet::new();
        assert_eq!(bits.set(BitSet::MAX_BITS), Err(BitSetError::TooLarge(BitSet::MAX_BITS)));
        assert_eq!(bits.set(usize::MAX), Err(BitSetError::TooLarge(usize::MAX)));
        assert!(bits.is_empty(), "nothing was allocated");
        assert_eq!(bits.set(BitSet::MAX_BITS - 1), Ok(()));
        assert_eq!(BitSet::from_base64(&bits.to_base64()), Ok(bits));
        assert_eq!(BitSet::from_base64("*"), Err(BitSetError::NotBase64));
        assert!(matches!(BitSet::from_base64(&"/".repeat(20_000)), Err(BitSetError::TooLarge(_))));
    }
}

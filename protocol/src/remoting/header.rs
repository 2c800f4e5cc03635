use super::ExtFields;

/// Why fields do not make the header that was expected.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum HeaderError {
    /// A required field is absent.
    #[error("the field {0} is missing")]
    Missing(&'static str),
    /// A field holds something that is not of its type.
    #[error("the field {name} cannot be {value:?}")]
    Invalid {
        /// Name on the wire.
        name: &'static str,
        /// What was there, cut to its first 64 characters.
        value: String,
    },
}

impl HeaderError {
    fn invalid(name: &'static str, value: &str) -> Self {
        Self::Invalid { name, value: value.chars().take(64).collect() }
    }
}

/// A typed view of the fields of a command.
pub trait Header: Sized {
    /// Reads the fields this header knows; others are left alone.
    ///
    /// # Errors
    /// A required field is missing or a value cannot be read.
    fn decode(ext: &ExtFields) -> Result<Self, HeaderError>;

    /// Sets the fields of this header; absent optional ones are not touched.
    fn encode(&self, ext: &mut ExtFields);
}

/// A value of a field. Everything travels as the text that Java's `toString` gives.
pub(super) trait Field: Sized {
    /// What the value is if the field is absent.
    fn absent(name: &'static str) -> Result<Self, HeaderError> {
        Err(HeaderError::Missing(name))
    }

    fn parse(name: &'static str, text: &str) -> Result<Self, HeaderError>;

    fn write(&self, name: &'static str, ext: &mut ExtFields);

    fn read(name: &'static str, ext: &ExtFields) -> Result<Self, HeaderError> {
        ext.get(name).map_or_else(|| Self::absent(name), |text| Self::parse(name, text))
    }
}

impl Field for String {
    fn parse(_: &'static str, text: &str) -> Result<Self, HeaderError> {
        Ok(text.to_owned())
    }

    fn write(&self, name: &'static str, ext: &mut ExtFields) {
        ext.set(name, self);
    }
}

impl Field for i32 {
    fn parse(name: &'static str, text: &str) -> Result<Self, HeaderError> {
        text.parse().map_err(|_| HeaderError::invalid(name, text))
    }

    fn write(&self, name: &'static str, ext: &mut ExtFields) {
        ext.set_number(name, *self);
    }
}

impl Field for i64 {
    fn parse(name: &'static str, text: &str) -> Result<Self, HeaderError> {
        text.parse().map_err(|_| HeaderError::invalid(name, text))
    }

    fn write(&self, name: &'static str, ext: &mut ExtFields) {
        ext.set_number(name, *self);
    }
}

/// As in Java, everything but `true` (in any case) is false.
impl Field for bool {
    fn parse(_: &'static str, text: &str) -> Result<Self, HeaderError> {
        Ok(text.eq_ignore_ascii_case("true"))
    }

    fn write(&self, name: &'static str, ext: &mut ExtFields) {
        ext.set(name, if *self { "true" } else { "false" });
    }
}

impl<T: Field> Field for Option<T> {
    fn absent(_: &'static str) -> Result<Self, HeaderError> {
        Ok(None)
    }

    fn parse(name: &'static str, text: &str) -> Result<Self, HeaderError> {
        T::parse(name, text).map(Some)
    }

    fn write(&self, name: &'static str, ext: &mut ExtFields) {
        if let Some(value) = self {
            value.write(name, ext);
        }
    }
}

/// Declares headers: each field once, with its type and its name on the wire. An absent field is an error unless it is an
/// `Option` or has a default behind `or`.
macro_rules! headers {
    (@read $ext:ident $wire:literal) => { $crate::remoting::header::Field::read($wire, $ext)? };
    (@read $ext:ident $wire:literal $default:expr) => {
        match $ext.get($wire) {
            Some(text) => $crate::remoting::header::Field::parse($wire, text)?,
            None => $default,
        }
    };
    ($(
        $(#[$about:meta])*
        $name:ident {
            $( $(#[$doc:meta])* $field:ident: $kind:ty = $wire:literal $(or $default:expr)?, )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $( $(#[$doc])* pub $field: $kind, )* }

        impl $crate::remoting::Header for $name {
            fn decode(ext: &$crate::remoting::ExtFields) -> Result<Self, $crate::remoting::HeaderError> {
                Ok(Self { $( $field: headers!(@read ext $wire $($default)?), )* })
            }

            fn encode(&self, ext: &mut $crate::remoting::ExtFields) {
                $( $crate::remoting::header::Field::write(&self.$field, $wire, ext); )*
            }
        }
    )* };
}
pub(super) use headers;

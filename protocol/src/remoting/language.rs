/// The language a peer says it is written in. Only statistics depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it all
pub enum Language {
    Java = 0,
    Cpp = 1,
    Dotnet = 2,
    Python = 3,
    Delphi = 4,
    Erlang = 5,
    Ruby = 6,
    Other = 7,
    Http = 8,
    Go = 9,
    Php = 10,
    Oms = 11,
    /// What we say of ourselves.
    #[default]
    Rust = 12,
    NodeJs = 13,
}

/// All languages with the names of the JSON header; the position is the number of the binary header.
const NAMES: [(&str, Language); 14] = [
    ("JAVA", Language::Java),
    ("CPP", Language::Cpp),
    ("DOTNET", Language::Dotnet),
    ("PYTHON", Language::Python),
    ("DELPHI", Language::Delphi),
    ("ERLANG", Language::Erlang),
    ("RUBY", Language::Ruby),
    ("OTHER", Language::Other),
    ("HTTP", Language::Http),
    ("GO", Language::Go),
    ("PHP", Language::Php),
    ("OMS", Language::Oms),
    ("RUST", Language::Rust),
    ("NODE_JS", Language::NodeJs),
];

impl Language {
    /// The number of the binary header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name of the JSON header, such as `NODE_JS`.
    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.number())).map_or("OTHER", |(name, _)| name)
    }

    /// An unknown number is [`Language::Other`]: a language invented tomorrow must not break a connection.
    pub fn from_number(number: u8) -> Self {
        NAMES.get(usize::from(number)).map_or(Language::Other, |(_, language)| *language)
    }

    /// An unknown name is [`Language::Other`].
    pub fn from_name(name: &str) -> Self {
        NAMES.iter().find(|(n, _)| *n == name).map_or(Language::Other, |(_, language)| *language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for (position, (name, language)) in NAMES.iter().enumerate() {
            assert_eq!(usize::from(language.number()), position);
            assert_eq!(language.name(), *name);
            assert_eq!(Language::from_number(language.number()), *language);
            assert_eq!(Language::from_name(name), *language);
        }
    }

    #[test]
    fn unknown_is_other() {
        assert_eq!(Language::from_number(14), Language::Other);
        assert_eq!(Language::from_number(255), Language::Other);
        assert_eq!(Language::from_name("COBOL"), Language::Other);
        assert_eq!(Language::from_name("java"), Language::Other);
    }
}

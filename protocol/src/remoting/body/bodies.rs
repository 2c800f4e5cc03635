/// Declares JSON bodies: each field once, `name: Type` or `name: Type = default`. Keys are the field names in camel case unless
/// a `#[serde(rename = …)]` says otherwise.
macro_rules! bodies {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    ($(
        $(#[$about:meta])*
        $name:ident {
            $( $(#[$doc:meta])* $field:ident: $kind:ty $(= $default:expr)?, )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $(
            $(#[$doc])*
            #[serde(deserialize_with = "crate::remoting::body::or_default")]
            pub $field: $kind,
        )* }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: bodies!(@default $($default)?), )* }
            }
        }

        impl $crate::remoting::body::JsonBody for $name {}
    )* };
}
pub(super) use bodies;

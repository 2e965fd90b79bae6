//! The methods that the blocking types have from the async ones.

/// Writes methods of a blocking type that call the async type with the same arguments.
///
/// `forward!(Guard of Guard { get token() -> Token; })` writes `blocking::Guard::token`, which
/// refers to the documentation of `leasehold::Guard::token`, followed by the example in front of the
/// line. The first word says how it calls:
///
/// | word | |
/// |---|---|
/// | `get` | returns what the method returns, and so does `call`, without `#[must_use]` |
/// | `set` | consumes the value and returns the changed one |
/// | `convert` | converts what the method returns to a blocking type |
/// | `wait` | waits for the future of the method, and so does `end`, which consumes the value |
/// | `grant`, `try_grant` | wait, and convert the value in a `Result` or a `Result<Result<_, Refused>>` |
macro_rules! forward {
    ($type:ident of $async:ident {
        $($(#[$example:meta])* $how:ident $name:ident $arguments:tt -> $returned:ty;)*
    }) => {
        impl $type {
            $(forward! {
                @$how [
                    #[doc = concat!(
                        "See [`leasehold::", stringify!($async), "::", stringify!($name), "`]",
                        "(crate::", stringify!($async), "::", stringify!($name), ")."
                    )]
                    $(#[$example])*
                ] $name $arguments -> $returned
            })*
        }
    };
    (@get [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        #[must_use]
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            self.0.$name($($argument),*)
        }
    };
    (@call [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            self.0.$name($($argument),*)
        }
    };
    (@set [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        #[must_use]
        pub fn $name(self, $($argument: $type),*) -> $returned {
            Self(self.0.$name($($argument),*))
        }
    };
    (@convert [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        #[must_use]
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            self.0.$name($($argument),*).into()
        }
    };
    (@wait [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            block_on(self.0.$name($($argument),*))
        }
    };
    (@end [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        pub fn $name(self, $($argument: $type),*) -> $returned {
            block_on(self.0.$name($($argument),*))
        }
    };
    (@grant [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            block_on(self.0.$name($($argument),*)).map(Into::into)
        }
    };
    (@try_grant [$($docs:tt)*] $name:ident($($argument:ident: $type:ty),*) -> $returned:ty) => {
        $($docs)*
        pub fn $name(&self, $($argument: $type),*) -> $returned {
            Ok(block_on(self.0.$name($($argument),*))?.map(Into::into))
        }
    };
}

/// Converts an async value to a blocking one.
macro_rules! from_async {
    ($async:ident => $type:ident) => {
        impl From<crate::$async> for $type {
            fn from(value: crate::$async) -> Self {
                Self(value)
            }
        }
    };
}

//! The methods of `TCLIService`: names, and the handle in a request's first field.

/// The handle in a request's first field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// None: the request opens a session.
    New,
    /// A session's handle.
    Session,
    /// An operation's handle.
    Operation,
}

macro_rules! methods {
    ($($name:ident $scope:ident,)*) => {
        /// A method of `TCLIService`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // the protocol's own names
        pub enum Method { $($name,)* }

        impl Method {
            /// In the order of the IDL.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn from_name(name: &str) -> Option<Self> {
                Self::from_bytes(name.as_bytes())
            }

            /// The same for a name that was not decoded.
            #[allow(non_upper_case_globals)] // the patterns, which have the names of the methods
            pub(crate) fn from_bytes(name: &[u8]) -> Option<Self> {
                $(const $name: &[u8] = stringify!($name).as_bytes();)*
                match name {
                    $($name => Some(Self::$name),)*
                    _ => None,
                }
            }

            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }
        }
    };
}

methods! {
    OpenSession New,
    CloseSession Session,
    GetInfo Session,
    ExecuteStatement Session,
    GetTypeInfo Session,
    GetCatalogs Session,
    GetSchemas Session,
    GetTables Session,
    GetTableTypes Session,
    GetColumns Session,
    GetFunctions Session,
    GetPrimaryKeys Session,
    GetCrossReference Session,
    GetOperationStatus Operation,
    CancelOperation Operation,
    CloseOperation Operation,
    GetResultSetMetadata Operation,
    FetchResults Operation,
    GetDelegationToken Session,
    CancelDelegationToken Session,
    RenewDelegationToken Session,
    GetQueryId Operation,
    SetClientInfo Session,
}

impl Method {
    /// Whether its reply has the handle of a new operation.
    pub const fn makes_operation(self) -> bool {
        matches!(
            self,
            Self::ExecuteStatement
                | Self::GetTypeInfo
                | Self::GetCatalogs
                | Self::GetSchemas
                | Self::GetTables
                | Self::GetTableTypes
                | Self::GetColumns
                | Self::GetFunctions
                | Self::GetPrimaryKeys
                | Self::GetCrossReference
        )
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

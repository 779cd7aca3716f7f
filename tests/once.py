"""What botocore and moto find out anew for each session, client or call, found out once. It is a third of what tests of
the store would take, and nothing that they answer changes. Imported for its effect."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import botocore.session
from botocore import hooks
from moto.core import models, responses
from moto.core.serialize import JSONSerializer
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, UpdateExpression
from moto.dynamodb.parsing.validators import ActionCountValidator

# -- botocore: a session reads the services' descriptions, names its events, and looks at what handles them ----------

botocore.session.create_loader = functools.cache(botocore.session.create_loader)

_aliaser = hooks.EventAliaser.__init__
_names: dict[str, str] = {}  # of events


def _with_names(self: hooks.EventAliaser, *args: Any, **kwargs: Any) -> None:
    _aliaser(self, *args, **kwargs)
    self._alias_name_cache = _names


def _accepts_kwargs(handler: Any) -> bool:
    code = getattr(handler, "__code__", None)
    return bool(code.co_flags & inspect.CO_VARKEYWORDS if code else _ask_signature(handler))


hooks.EventAliaser.__init__ = _with_names
_ask_signature, hooks.accepts_kwargs = hooks.accepts_kwargs, _accepts_kwargs

# -- moto: a mock prepares `requests`, which nobody here uses; a call lists the methods that might answer it ---------

models.RESPONSES_METHODS = []
responses.method_names_from_class = functools.cache(responses.method_names_from_class)

# It looks for each of the ten members of each value in an answer, under several names: a value of DynamoDB has one.
_structure = JSONSerializer._serialize_type_structure


def _structure_of_what_is_there(self: JSONSerializer, serialized: Any, value: Any, shape: Any, key: str) -> None:
    if shape.name == "AttributeValue" and type(value) is dict and value.keys() <= shape.members.keys():
        members: dict[str, Any] = {}
        for name, member in value.items():
            self._serialize(members, member, shape.members[name], name)
        self._default_serialize(serialized, members, shape, key)
    else:
        _structure(self, serialized, value, shape, key)


JSONSerializer._serialize_type_structure = _structure_of_what_is_there  # type: ignore[method-assign]

# It counts the clauses of an update at each node of the expression, although the root contains all; and asks at each
# which kinds of nodes are processed.
_count_clauses = ActionCountValidator.verify_action_counts
_kinds_of = DepthFirstTraverser.nodes_to_be_processed
_kinds: dict[type, Any] = {}


def _count_at_the_root(self: ActionCountValidator, node: UpdateExpression) -> UpdateExpression:
    return node if node.parent else _count_clauses(self, node)


def _kinds_by_class(self: DepthFirstTraverser) -> Any:
    kind = type(self)
    if kind not in _kinds:
        _kinds[kind] = _kinds_of(self)
    return _kinds[kind]


ActionCountValidator.verify_action_counts = _count_at_the_root  # type: ignore[method-assign]
DepthFirstTraverser.nodes_to_be_processed = _kinds_by_class

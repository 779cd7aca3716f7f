"""What botocore and moto find out anew for each session, client or call, found out once. It is a third of what tests of
the store would take, and nothing that they answer changes. Imported for its effect."""

from __future__ import annotations

import functools
import inspect
import pickle
from typing import Any

import botocore.session
from botocore import hooks, useragent
from moto.core import models, responses
from moto.core.serialize import JSONSerializer
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, Node, UpdateExpression
from moto.dynamodb.parsing.expressions import UpdateExpressionParser
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

# Each request has a user agent, whose forty parts are cleaned character by character.
useragent.sanitize_user_agent_string_component = functools.cache(useragent.sanitize_user_agent_string_component)

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

# It parses the expression of an update twice, to copy what comes of it.
UpdateExpressionParser.make = functools.lru_cache(1000)(UpdateExpressionParser.make)

# It counts the clauses of an update at each node of the expression, although the root contains all; and goes through
# the expression ten times, asking at each node which kinds of nodes are processed, and whether it is of one.
_count_clauses = ActionCountValidator.verify_action_counts
_kinds_of = DepthFirstTraverser.nodes_to_be_processed
_kinds: dict[type, Any] = {}
_is_of = functools.cache(issubclass)


def _count_at_the_root(self: ActionCountValidator, node: UpdateExpression) -> UpdateExpression:
    return node if node.parent else _count_clauses(self, node)


def _traverse(self: DepthFirstTraverser, node: Any, child_id: int = -1) -> Any:
    kind = type(self)
    if kind not in _kinds:
        _kinds[kind] = _kinds_of(self)
    if not _is_of(type(node), Node):
        return node
    parent = node.parent
    for n, child in enumerate(node.children or ()):
        self.pre_processing_of_child(node, n)
        _traverse(self, child, n)
    if _is_of(type(node), _kinds[kind]):
        node = self.process(node)
        node.parent = parent
        if parent:
            parent.children[child_id] = node
    return node


ActionCountValidator.verify_action_counts = _count_at_the_root  # type: ignore[method-assign]
DepthFirstTraverser.traverse_node_recursively = _traverse  # type: ignore[method-assign]
Node.__deepcopy__ = lambda self, memo: pickle.loads(pickle.dumps(self))  # type: ignore[attr-defined]

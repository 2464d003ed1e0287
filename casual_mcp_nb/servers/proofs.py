"""Proofs of possession (DPoP): a request with a token is signed with the key to which the token is
bound, so that a stolen token is of no use.

See https://www.rfc-editor.org/rfc/rfc9449.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

import httpx2


class Proofs:
    """Signs the proofs of one sign-in.

    Attributes:
        wanted: Whether the authorization server binds tokens to keys.
        bound: Whether the current token is bound.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.bound = False
        self._key: Any = None
        self._nonces: dict[str, str] = {}

    @property
    def stored(self) -> str | None:
        """The private key of a bound token, for the account's file."""
        if not self.bound:
            return None
        from cryptography.hazmat.primitives import serialization

        kind = serialization.PrivateFormat.PKCS8
        return str(
            self._pair.private_bytes(
                serialization.Encoding.PEM, kind, serialization.NoEncryption()
            ).decode()
        )

    def restore(self, pem: Any) -> None:
        """Use the key of a stored token."""
        if not isinstance(pem, str):
            return
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        with contextlib.suppress(ValueError):
            self._key = load_pem_private_key(pem.encode(), None)
            self.bound = self.wanted = True

    def proof(self, request: httpx2.Request, token: str | None = None) -> str:
        """Sign a proof for one request."""
        import jwt
        from jwt.algorithms import ECAlgorithm

        url = request.url.copy_with(query=None, fragment=None)
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": request.method,
            "htu": str(url),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = (
                base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
                .rstrip(b"=")
                .decode()
            )
        if nonce := self._nonces.get(_origin(request)):
            claims["nonce"] = nonce
        public = ECAlgorithm.to_jwk(self._pair.public_key(), as_dict=True)
        return jwt.encode(
            claims, self._pair, algorithm="ES256", headers={"typ": "dpop+jwt", "jwk": public}
        )

    async def challenged(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """Note the nonce of a response, and check whether the request has to be sent again with
        it.
        """
        nonce = response.headers.get("dpop-nonce", "")[:1_000]
        if not nonce or "dpop" not in request.headers:
            return False
        before, self._nonces[_origin(request)] = self._nonces.get(_origin(request)), nonce
        if response.status_code not in (400, 401) or before == nonce:
            return False
        named = response.headers.get("www-authenticate", "")
        return "use_dpop_nonce" in named or b"use_dpop_nonce" in await response.aread()

    def read_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Note whether an authorization server binds tokens, by its metadata."""
        algorithms = metadata.get("dpop_signing_alg_values_supported")
        if isinstance(algorithms, list) and "ES256" in algorithms:
            self.wanted = True

    def read_challenge(self, response: httpx2.Response) -> None:
        """Note whether a server wants bound tokens."""
        if response.headers.get("www-authenticate", "").lower().startswith("dpop"):
            self.wanted = True

    @property
    def _pair(self) -> Any:
        if self._key is None:
            from cryptography.hazmat.primitives.asymmetric import ec

            self._key = ec.generate_private_key(ec.SECP256R1())
        return self._key


def _origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"

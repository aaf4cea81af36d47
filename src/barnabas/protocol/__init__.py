"""The wire protocol, without I/O: conversion between bytes and messages.

`declare` defines the form of a message declaration, and `messages/` contains the declarations. `compiler` generates
encoders and decoders from them. `codec` calls these functions, and adds headers and sizes. `apis` lists the APIs. The
source is Apache Kafka's public message definitions.
"""

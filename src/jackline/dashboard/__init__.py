"""The page in the browser that shows the fleet, and takes orders.

Rules: (1) it shows the documents and sentences of control/; (2) the page is served from the
package, and needs nothing from elsewhere; (3) watching costs the gateway next to nothing.
"""

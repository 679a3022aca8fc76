-- Expand bids: every bid on a category 10 auction, with the auction's columns. Both sides are kept for good.
-- sources: bid auction
CREATE STREAM q20 AS
  SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
         a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS dateTime, a.expires, a.seller, a.category, a.extra AS extra
  FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id
  WHERE a.category = 10;

-- answer
SELECT b.* EXCLUDE (arrived) RENAME (dateTime AS bid_dateTime, extra AS bid_extra), a.* EXCLUDE (id)
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
